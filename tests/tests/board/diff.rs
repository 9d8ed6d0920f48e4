//! Tests on a real ARM kernel that `unspool diff` puts a slower function first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use unspool_tests::{process, report, waiting};

use super::{ISAS, Isa, place};

const LIMIT: Duration = Duration::from_secs(60);
/// Comparisons that are made until one is as expected, because the emulator's speed varies.
const ATTEMPTS: usize = 4;

pub(super) fn trials() -> Vec<Trial> {
    // One of each machine.
    let isas = ISAS.into_iter().filter(|isa| isa.name != "a32");
    let trials =
        isas.map(|isa| super::trial(format!("diff-{}", isa.name), move || slower_section(isa)));
    trials.collect()
}

fn build(isa: Isa, option: &str) -> Result<(TempDir, PathBuf)> {
    let compiler = isa.machine.tool("gcc");
    let command = [
        &compiler,
        "-std=gnu11",
        "-g",
        "-O1",
        "-pthread",
        isa.flag,
        option,
    ];
    waiting::compile_in("critical", "compare.c", &command)
}

fn record(isa: Isa, program: &Path, capture: &Path) -> Result<()> {
    let placed = place(isa.machine, program)?;
    let server = isa
        .board()?
        .serve(&format!("unspool-stub --once 0.0.0.0:0 {}", placed.there))?;
    let sysroot = placed.sysroot.path().display().to_string();
    let address = server.address();
    let options = ["--sync", "--sysroot", &sysroot, "--connect", &address];
    report::record(capture, &options, &[])?.success()?;
    server.finish()?;
    Ok(())
}

fn slower_section(isa: Isa) -> Result<()> {
    let (folder, before) = build(isa, "-DORIGINAL")?;
    // The emulator's speed may vary by as much as a few tenths.
    let (_folder, after) = build(isa, "-DTWICE")?;
    let captures = ["before", "after"].map(|name| folder.path().join(name));
    let mut failures = Vec::new();
    for _ in 0..ATTEMPTS {
        record(isa, &before, &captures[0])?;
        record(isa, &after, &captures[1])?;
        let mut diff = report::unspool()?;
        diff.args(["diff", "--format", "json"]).args(&captures);
        let run = process::run(&mut diff, LIMIT)?.success()?;
        let seen: Value = serde_json::from_slice(&run.stdout)?;
        let first = &seen["effects"][0];
        let is_known = first["kind"] == "threads" || first["kind"] == "function";
        if is_known && first["cause"] == "work" && first["noise"] == false {
            return Ok(());
        }
        failures.push(format!("{first:#}"));
    }
    bail!("{}", failures.join("\n"))
}
