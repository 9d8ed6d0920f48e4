//! Recordings that end by a signal.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;

use crate::running::{Live, created, record, report, report_of_cut, signal, wait_until_recorded};
use std::time::Duration;

#[test]
fn sigint_to_record_ends_the_program_and_keeps_the_recording() {
    for asked in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c");
        let record = record(&file, &["until-signal"]);
        // The tests may run under nohup.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP")
            .arg(record.get_program());
        let mut live = Live::start(command.args(record.get_args()).stderr(Stdio::null()));
        assert!(live.line().starts_with("ready"));
        std::thread::sleep(Duration::from_millis(50));
        signal(live.pid(), asked);
        assert_eq!(
            live.line(),
            "signal 2, 1 in all",
            "the program gets one SIGINT"
        );
        assert_eq!(live.wait().code(), Some(3));
        assert!(created(&report(&file)).len() > 2);
    }
}

/// A terminal sends SIGINT to the whole foreground group. The program must still get it only once.
#[test]
fn sigint_from_the_terminal_reaches_the_program_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut live = Live::start(
        record(&file, &["until-signal"])
            .stderr(Stdio::null())
            .process_group(0),
    );
    assert!(live.line().starts_with("ready"));
    std::thread::sleep(Duration::from_millis(50));
    signal(-live.pid(), Signal::SIGINT);
    assert_eq!(live.line(), "signal 2, 1 in all");
    assert_eq!(live.wait().code(), Some(3));
    assert!(created(&report(&file)).len() > 2);
}

#[test]
fn a_program_that_ignores_sigint_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut live = Live::start(record(&file, &["stubborn"]).stderr(Stdio::null()));
    assert_eq!(live.line(), "ready");
    signal(live.pid(), Signal::SIGINT);
    assert_eq!(live.wait().code(), Some(128 + 9));
    let report = report(&file);
    assert_eq!(created(&report).len(), 2);
    assert!(
        report["notes"].to_string().contains("2 seconds"),
        "{}",
        report["notes"]
    );
}

/// A recorder that is killed cannot clean up. The program continues as without it, and the capture
/// opens and is reported as cut.
#[test]
fn a_killed_recording_opens() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut live = Live::start(
        record(&file, &["until-signal"])
            .process_group(0)
            .stderr(Stdio::null()),
    );
    let ready = live.line();
    assert!(ready.starts_with("ready"), "{ready}");
    wait_until_recorded(&file, |report| created(report).len() > 2);
    signal(live.pid(), Signal::SIGKILL);
    live.wait();
    let report = report_of_cut(&file);
    assert!(created(&report).len() > 2);
    // The program is still there, handles its signals, and ends by itself.
    signal(-live.pid(), Signal::SIGINT);
    assert_eq!(live.line(), "signal 2, 1 in all");
}
