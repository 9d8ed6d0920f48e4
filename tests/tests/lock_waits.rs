//! Tests the waits for locks that the kernel's schedule shows, without any recorded call: in a
//! process that the program starts, and in the program itself. The truth is the program's clock.

use anyhow::Result;
use libtest_mimic::Trial;

use unspool_tests::{lock_waits, report};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("lock-waits::started-process", || check(true)),
        crate::trial("lock-waits::own", || check(false)),
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
