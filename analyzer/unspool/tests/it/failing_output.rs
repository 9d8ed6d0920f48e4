//! Full disks: the program runs to its end, and the failed recording is reported clearly.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::running::{Live, Run, created, record, report_of_cut, signal};

#[test]
fn dev_full_from_the_start() {
    let run = Run::of(&mut record(Path::new("/dev/full"), &["exit", "0"]));
    run.fails_with(1, &["no space left"]);
}

/// A file size limit acts as a full disk: writes fail in the middle of the recording.
fn limited(command: &str, kib: u32) -> std::process::Command {
    let mut shell = std::process::Command::new("bash");
    // The shell counts in KiB; SIGXFSZ must be ignored for write to fail with EFBIG.
    shell
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f {kib}; exec {command}"));
    shell
}

/// Records a program that creates `threads` threads into a file of at most `kib` KiB.
fn recorded(threads: u32, file: &std::path::Path, kib: u32) -> std::process::Command {
    let command = format!(
        "{} record -o {} -- {} many {threads}",
        env!("CARGO_BIN_EXE_unspool"),
        file.display(),
        crate::running::subject().display()
    );
    limited(&command, kib)
}

#[test]
fn a_disk_that_fills_up_leaves_the_program_running() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let run = Run::of(&mut recorded(3000, &file, 40));
    run.fails_with(1, &["no space left", "can be read"]);
    assert!(std::fs::metadata(&file).unwrap().len() > 1000);
    assert!(!created(&report_of_cut(&file)).is_empty());
}

/// The recorder is then far behind the program, and its request to stop takes long.
#[test]
fn a_disk_that_fills_up_under_lock_traffic_leaves_the_program_running() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let command = format!(
        "{} record -q --sync=all --budget none -o {} -- {} traffic 30000",
        env!("CARGO_BIN_EXE_unspool"),
        file.display(),
        crate::running::subject().display()
    );
    let run = Run::of(&mut limited(&command, 200));
    run.fails_with(1, &["no space left", "can be read"]);
    assert_eq!(run.stdout, "done\n");
    report_of_cut(&file);
}

/// Writing may fail at any point of the program's end, when the recorder has no traps left to
/// remove.
#[test]
fn a_disk_that_fills_up_when_the_program_ends_leaves_it_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    for threads in (150..600).step_by(15) {
        let run = Run::of(&mut recorded(threads, &file, 8));
        // With few threads, the whole recording may fit.
        let code = run.code.unwrap();
        assert!(code < 2, "{threads} threads: {code}\n{}", run.stderr);
    }
}

#[test]
fn an_attached_program_continues_when_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut program = Live::subject(["until-signal"]);
    program.line();
    let command = format!(
        "{} record -o {} --attach {}",
        env!("CARGO_BIN_EXE_unspool"),
        file.display(),
        program.pid()
    );
    let mut recorder = Live::start(limited(&command, 4).stderr(Stdio::null()));
    assert_eq!(recorder.wait().code(), Some(1));
    std::thread::sleep(Duration::from_millis(50));
    signal(program.pid(), Signal::SIGTERM);
    assert_eq!(program.line(), "signal 15, 1 in all");
    report_of_cut(&file);
}
