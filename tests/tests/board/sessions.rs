//! Real gdb with the stub on the board, every step checked; and gdbserver beside it, as a second judge.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::build::{Build, Compiler, Link, Tables, Target};
use unspool_tests::process;
use unspool_tests::program::program;
use unspool_tests::truth;
use unspool_tests::workspace;

use super::{Placed, arm, compile, place};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for target in [Target::A32, Target::T32] {
        let build = Build {
            program: "pool",
            compiler: Compiler::Gcc,
            target,
            level: 0,
            link: Link::Pie,
            tables: Tables::Unwind,
        };
        for (session, function, hits) in [
            ("walk", "", 0),
            ("breakpoints", "worker", 8),
            ("detach", "", 0),
        ] {
            let name = format!("gdb::{session}-{}", build.name());
            trials.push(super::trial(&name, move || {
                with_pool(build, session, function, hits)
            }));
        }
    }
    trials.push(super::trial("gdb::interrupt", interrupt));
    trials.push(super::trial(
        "registers::as_gdbserver",
        registers_as_gdbserver,
    ));
    trials
}

fn gdb(program: &Path, sysroot: &Path) -> Command {
    let mut gdb = truth::multiarch(sysroot);
    gdb.arg(program);
    gdb
}

fn session(placed: &Placed, session: &str, address: &str, more: &[(&str, String)]) -> Result<()> {
    let mut gdb = gdb(&placed.here, placed.sysroot.path());
    gdb.arg("-x")
        .arg(workspace::file("gdb/session.py"))
        .env("SESSION", session)
        .env("STUB", address)
        .envs(more.iter().map(|(name, value)| (*name, value)));
    let run = process::run(&mut gdb, Duration::from_secs(300))?.success()?;
    ensure!(
        run.text().contains("\nsession done\n"),
        "the session did not end\n{run}"
    );
    Ok(())
}

fn with_pool(build: Build, name: &str, function: &str, hits: u32) -> Result<()> {
    let placed = place(&build.built(program("pool"))?.program)?;
    let server = arm()?.serve(&format!("unspool-stub --once 0.0.0.0:0 {}", placed.there))?;
    let more = [
        ("FUNCTION", function.to_owned()),
        ("HITS", hits.to_string()),
    ];
    session(&placed, name, &server.address(), &more)?;
    let output = server.finish()?;
    ensure!(
        output.contains("pool: 8 workers, sum 31996000\n"),
        "the program wrote {output:?}"
    );
    Ok(())
}

fn interrupt() -> Result<()> {
    let (program, _folder) = compile("tests/programs/sleep.c", &[])?;
    let placed = place(&program)?;
    let server = arm()?.serve(&format!("unspool-stub --once 0.0.0.0:0 {}", placed.there))?;
    session(&placed, "interrupt", &server.address(), &[])?;
    server.finish().map(|_| ())
}

/// All registers, the floating-point ones among them, the auxiliary vector, libraries and threads of one sleeping
/// process, as gdb shows them through either server.
fn registers_as_gdbserver() -> Result<()> {
    let (program, _folder) = compile("tests/programs/sleep.c", &["-O0", "-mfpu=neon"])?;
    let placed = place(&program)?;
    let target = arm()?.shell(&format!(
        "{} </dev/null >/dev/null 2>&1 & echo $!",
        placed.there
    ))?;
    let target = target.trim();
    std::thread::sleep(Duration::from_millis(500));
    let mut shown = Vec::new();
    for server in ["unspool-stub --once --attach", "gdbserver --once --attach"] {
        let server = arm()?.serve(&format!("{server} 0.0.0.0:0 {target}"))?;
        let mut gdb = gdb(&placed.here, placed.sysroot.path());
        gdb.args(["-ex", &format!("target remote {}", server.address())]);
        for command in [
            "info registers",
            "info all-registers",
            "p $d5",
            "p/x $q9.u64",
            "p/x $s31",
            "info auxv",
            "info sharedlibrary",
            "bt",
            "detach",
        ] {
            gdb.args(["-ex", &format!("echo == {command}\\n"), "-ex", command]);
        }
        let run = process::run(&mut gdb, Duration::from_secs(60))?.success()?;
        let text = run.text();
        let at = text.find("== info registers").context("no answer")?;
        shown.push(text[at..].to_owned());
        server.finish()?;
    }
    arm()?.shell(&format!("kill -9 {target}"))?;
    ensure!(
        shown[0].contains("d5             5.25") || shown[0].contains("$1 = 5.25"),
        "the program's own value: {}",
        shown[0]
    );
    let differ: Vec<_> = shown[0]
        .lines()
        .zip(shown[1].lines())
        // gdbserver 13 does not read it.
        .filter(|(_, theirs)| !theirs.starts_with("tpidruro"))
        .filter(|(ours, theirs)| ours != theirs)
        .collect();
    ensure!(
        differ.is_empty() && shown[0].lines().count() == shown[1].lines().count(),
        "they differ: {differ:#?}\n{}\n{}",
        shown[0],
        shown[1]
    );
    Ok(())
}
