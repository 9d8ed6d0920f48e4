//! Runs real gdb with the stub on the board and checks every step, and compares with gdbserver.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::build::{Build, Compiler, Link, Tables};
use unspool_tests::process;
use unspool_tests::program::program;
use unspool_tests::truth;
use unspool_tests::workspace;

use unspool_tests::board::{self, Machine};

use super::{ISAS, Isa, Placed, compile, place};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for isa in ISAS {
        let build = Build {
            program: "pool",
            compiler: Compiler::Gcc,
            target: isa.target,
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
                with_pool(isa, build, session, function, hits)
            }));
        }
    }
    for machine in Machine::ALL {
        let name = format!("gdb::interrupt-{}", machine.name());
        trials.push(super::trial(&name, move || interrupt(machine)));
    }
    trials.push(super::trial("registers::as_gdbserver-arm", || {
        registers_as_gdbserver(Machine::Arm)
    }));
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

fn with_pool(isa: Isa, build: Build, name: &str, function: &str, hits: u32) -> Result<()> {
    let placed = place(isa.machine, &build.built(program("pool"))?.program)?;
    let server = isa
        .board()?
        .serve(&format!("unspool-stub --once 0.0.0.0:0 {}", placed.there))?;
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

fn interrupt(machine: Machine) -> Result<()> {
    let (program, _folder) = compile(machine, "tests/programs/sleep.c", &[])?;
    let placed = place(machine, &program)?;
    let server =
        board::get(machine)?.serve(&format!("unspool-stub --once 0.0.0.0:0 {}", placed.there))?;
    session(&placed, "interrupt", &server.address(), &[])?;
    server.finish().map(|_| ())
}

/// Compares all registers including floating-point ones, the auxiliary vector, libraries and
/// threads of one sleeping process, as gdb shows them through either server.
fn registers_as_gdbserver(machine: Machine) -> Result<()> {
    let (options, values): (&[&str], [&str; 3]) = match machine {
        Machine::Arm => (&["-O0", "-mfpu=neon"], ["p $d5", "p/x $q9.u64", "p/x $s31"]),
        Machine::Arm64 => (&["-O0"], ["p $d5", "p/x $v9", "p/x $v16"]),
    };
    let (program, _folder) = compile(machine, "tests/programs/sleep.c", options)?;
    let placed = place(machine, &program)?;
    let target = board::get(machine)?.shell(&format!(
        "{} </dev/null >/dev/null 2>&1 & sleep 0.5
        until grep -q '^State:.S' /proc/$!/status; do sleep 0.1; done; echo $!",
        placed.there
    ))?;
    let target = target.trim();
    let mut shown = Vec::new();
    for server in ["unspool-stub --once --attach", "gdbserver --once --attach"] {
        let server = board::get(machine)?.serve(&format!("{server} 0.0.0.0:0 {target}"))?;
        let mut gdb = gdb(&placed.here, placed.sysroot.path());
        gdb.args(["-ex", &format!("target remote {}", server.address())]);
        for command in [
            "info registers",
            "info all-registers",
            values[0],
            values[1],
            values[2],
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
    board::get(machine)?.shell(&format!("kill -9 {target}"))?;
    ensure!(
        ["d5             5.25", "$1 = 5.25", "f = 5.25"]
            .iter()
            .any(|known| shown[0].contains(known)),
        "the program's own value: {}",
        shown[0]
    );
    // Registers that gdbserver 13 does not read or shows as single bits, and those that the kernel
    // changes when the sleep continues after a stop.
    let apart = ["tpidruro", "tpidr2", "fpsr", "fpcr", "x8 "];
    let lines = |text: &str| -> Vec<String> {
        let kept = |line: &&str| !apart.iter().any(|name| line.starts_with(name));
        text.lines().filter(kept).map(str::to_owned).collect()
    };
    let (ours, theirs) = (lines(&shown[0]), lines(&shown[1]));
    let differ: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).collect();
    ensure!(
        differ.is_empty() && ours.len() == theirs.len(),
        "they differ: {differ:#?}\n{}\n{}",
        shown[0],
        shown[1]
    );
    Ok(())
}
