//! Tests the waits for locks that the kernel's schedule shows, without any recorded call: in a
//! process that the program starts, and in the program itself. The truth is the program's clock.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::{lock_waits, report, waiting};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("lock-waits::started-process", || check(true)),
        crate::trial("lock-waits::own", || check(false)),
        crate::trial("lock-waits::shared-memory", shared),
    ]
}

fn check(started: bool) -> Result<()> {
    let (folder, command) = lock_waits::build(started)?;
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let capture = folder.path().join("capture");
    let run = report::record(&capture, &[], &command)?.success()?;
    let output = String::from_utf8_lossy(&run.stdout);
    let json = report::json(&capture, &[])?;
    lock_waits::compare(&output, &json, started)
}

/// One mutex of four forked processes.
fn shared() -> Result<()> {
    let compiler = ["gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "shared_lock.c", &compiler)?;
    let capture = folder.path().join("capture");
    let program = program.to_str().context("a path in UTF-8")?;
    report::record(&capture, &[], &[program])?.success()?;
    let json = report::json(&capture, &[])?;
    let locks = json["lock_waits"].as_array().context("lock_waits")?;
    let [lock] = &locks[..] else {
        anyhow::bail!("{locks:#?}");
    };
    ensure!(lock["processes"] == 4, "{lock:#}");
    ensure!(
        lock["waiters"].as_array().is_some_and(|it| it.len() == 4),
        "{lock:#}"
    );
    // Without it, the run would take 40 turns of 5 ms instead of 160 of 4 ms.
    let impacts = json["critical_path"]["impacts"]
        .as_array()
        .context("impacts")?;
    let of_lock = impacts.iter().filter(|it| it["lock_waits"] == 0);
    let shares: Vec<f64> = of_lock.filter_map(|it| it["share"].as_f64()).collect();
    ensure!(
        matches!(shares[..], [share] if (0.6..0.75).contains(&share)),
        "{impacts:#?}"
    );
    Ok(())
}
