//! Tests the budget: `record --connect --budget` sets it on a running server, and by default it is
//! large enough for ordinary programs.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::{process, qemu, report, waiting};

use crate::looks::serve;

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("of_a_stub", of_a_stub as fn() -> Result<()>),
        ("of_another_server", of_another_server),
        (
            "suffices_for_thousands_of_calls",
            suffices_for_thousands_of_calls,
        ),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("budget::{name}"), check))
    .collect()
}

/// Some 8,000 beginnings and ends of futex calls a second are all recorded by default. The program
/// counts its calls.
fn suffices_for_thousands_of_calls() -> Result<()> {
    let options = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "turns.c", &options)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--sync", "-o"]).arg(&capture);
    record.arg("--").arg(&program).arg("4000");
    let run = process::run(&mut record, LIMIT)?.success()?;
    let told = String::from_utf8_lossy(&run.stdout);
    let mut numbers = told.split_whitespace().filter_map(|word| word.parse().ok());
    let (waits, wakes): (u64, u64) = numbers.next().zip(numbers.next()).context("no counts")?;
    let json = report::json(&capture, &[])?;
    let recording = &json["recording"];
    let recorded = recording["calls_recorded"].as_u64().unwrap_or(0);
    let made = 2 * waits + wakes;
    ensure!(
        100 * recorded >= 99 * made && recording["calls_missed"] == 0,
        "{recorded} of {made}: {recording}"
    );
    Ok(())
}

const LIMIT: Duration = Duration::from_secs(60);

/// Without `--budget` most of these calls are missed; the stub's own limit is respected.
fn of_a_stub() -> Result<()> {
    let options = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "locks.c", &options)?;
    let capture = folder.path().join("capture");
    for (own, asked, missed) in [
        (None, Some("none"), Some(false)),
        (None, Some("0.1%"), Some(true)),
        (Some("0.1%"), None, Some(true)),
        (Some("0.1%"), Some("none"), None),
    ] {
        let (_stub, address) = serve(|command| {
            command.args(own.iter().flat_map(|own| ["--budget", own]));
            command.arg(":0").arg(&program).args(["4", "3000"]);
        })?;
        let mut record = report::unspool()?;
        record.args(["record", "-q", "--sync=all", "--connect", &address, "-o"]);
        record.arg(&capture);
        record.args(asked.iter().flat_map(|asked| ["--budget", asked]));
        let run = process::run(&mut record, LIMIT)?;
        let case = format!("stub {own:?}, recorder {asked:?}: {run}");
        let Some(missed) = missed else {
            ensure!(
                run.code()? == 1 && run.stderr.contains("a smaller --budget"),
                "{case}"
            );
            continue;
        };
        let run = run.success()?;
        let json = report::json(&capture, &[])?;
        let paused = json["recording"]["paused_probes"].as_array();
        let paused = paused.with_context(|| format!("{run}"))?;
        ensure!(paused.is_empty() != missed, "{case}\n{paused:?}");
    }
    Ok(())
}

/// QEMU's server has no budget: no limit is its normal behaviour, any other is refused.
fn of_another_server() -> Result<()> {
    let sysroot = qemu::sysroot()?;
    let program = sysroot.join("usr/bin/pigz");
    for (asked, code) in [("none", 0), ("5%", 1)] {
        let folder = tempfile::tempdir()?;
        let emulator = qemu::start(&program, &["--version"], Stdio::null())?;
        let address = format!("unix:{}", emulator.socket.display());
        let mut record = report::unspool()?;
        record.args([
            "record",
            "-q",
            "--connect",
            &address,
            "--budget",
            asked,
            "-o",
        ]);
        record
            .arg(folder.path().join("capture"))
            .arg("--sysroot")
            .arg(sysroot);
        let run = process::run(&mut record, LIMIT)?;
        ensure!(run.code()? == code, "{asked}: {run}");
        ensure!(
            run.stderr.contains("QUnspoolBudget") == (code == 1),
            "{asked}: {run}"
        );
    }
    Ok(())
}
