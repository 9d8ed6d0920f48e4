//! Programs with damaged call frame information: stacks are right, and a note reports the damage.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use unspool_image::Image;

use crate::running::{Live, Run, signal, subject, unspool, wait_for};
use nix::sys::signal::Signal;

/// Changes frame sizes: `DW_CFA_advance_loc`, then `DW_CFA_def_cfa_offset` with 32 bytes or more.
fn damaged(image: &Image) -> Vec<u8> {
    let section = image.section(".eh_frame").expect(".eh_frame");
    let offset = section.data.as_ptr() as usize - image.bytes().as_ptr() as usize;
    let mut bytes = image.bytes().to_vec();
    let mut count = 0;
    for at in offset..offset + section.data.len() - 3 {
        if matches!(bytes[at..at + 3], [0x40..0x80, 0x0e, 0x20..0x80]) {
            bytes[at + 2] ^= 0x08;
            count += 1;
        }
    }
    assert!(count > 2, "{count} frame sizes");
    bytes
}

#[test]
fn inspect_reports_damaged_call_frame_information() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("subject");
    let bytes = dir.path().join("bytes");
    std::fs::write(&bytes, damaged(&Image::open(subject()).unwrap())).unwrap();
    // A child that another test starts meanwhile has this test's open files for a moment. Linux
    // does not execute a file that is open for writing. Here, only `install` has it open.
    let mut install = Command::new("install");
    let status = install.args([&bytes, &program]).status().unwrap();
    assert!(status.success(), "install: {status}");
    let mut live = Live::start(Command::new(&program).arg("until-signal"));
    live.line();
    let pid = live.pid().to_string();
    let report = wait_for(Duration::from_secs(10), || {
        let run = Run::of(unspool().args(["inspect", "--attach", &pid, "--format", "json"]));
        run.succeeds();
        let report: Value = serde_json::from_str(&run.stdout).unwrap();
        // The threads have reached the function in which they stay.
        run.stdout.contains("long_life").then_some(report)
    });
    let report = report.expect("threads in long_life");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("Stacks through subject may be wrong") && notes.contains("contradicts"),
        "{report:#}"
    );
    let threads = report["threads"].as_array().unwrap();
    assert!(
        !report.to_string().contains("outside all known code"),
        "{threads:#?}"
    );
    signal(live.pid(), Signal::SIGTERM);
    live.wait();
}
