//! Tests on a real ARM kernel the waits for locks that its schedule shows, without any recorded
//! call. The truth is the program's clock.

use anyhow::{Context, Result};
use libtest_mimic::Trial;

use unspool_tests::{lock_waits, report, waiting};

use super::{ISAS, Isa, place};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for isa in ISAS {
        for (name, started) in [("started-process", true), ("own", false)] {
            let name = format!("lock-waits::{name}-{}", isa.name);
            trials.push(super::trial(&name, move || check(isa, started)));
        }
    }
    trials
}

fn check(isa: Isa, started: bool) -> Result<()> {
    let compiler = isa.machine.tool("gcc");
    let command = [&compiler, "-std=gnu11", "-g", "-O1", "-pthread", isa.flag];
    let (folder, program) = waiting::compile_in(".", lock_waits::SOURCE, &command)?;
    let placed = place(isa.machine, &program)?;
    let argument = if started { "start" } else { "" };
    let server = isa.board()?.serve(&format!(
        "unspool-stub --once 0.0.0.0:0 {} {argument}",
        placed.there
    ))?;
    let capture = folder.path().join("capture");
    let sysroot = placed.sysroot.path().display().to_string();
    let options = ["--sysroot", &sysroot, "--connect", &server.address()];
    let run = report::record(&capture, &options, &[])?.success()?;
    let output = server.finish()?;
    let json = report::json(&capture, &options[..2])?;
    lock_waits::compare(&output, &json, started).with_context(|| format!("{run}"))
}
