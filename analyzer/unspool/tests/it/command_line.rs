//! Help, versions, and wrong command lines.

use std::io::Read;
use std::process::Stdio;

use crate::running::{Run, unspool};

#[test]
fn help_names_every_command_and_fits_100_columns() {
    for args in [
        &["--help"][..],
        &["record", "--help"],
        &["report", "--help"],
        &["export", "--help"],
        &["inspect", "--help"],
        &["demo", "--help"],
        &["table", "--help"],
        &["rsp", "--help"],
        &["rsp", "script", "--help"],
    ] {
        let run = Run::of(unspool().args(args));
        run.succeeds();
        for line in run.stdout.lines() {
            assert!(line.chars().count() <= 100, "{args:?}: {line}");
        }
        assert!(run.stdout.ends_with('\n'));
    }
    let help = Run::of(unspool().arg("--help")).stdout;
    for args in [&["help", "--help"][..], &["help", "-h"]] {
        let run = Run::of(unspool().args(args));
        run.succeeds();
        assert_eq!(run.stdout, help, "{args:?}");
    }
    let run = Run::of(unspool().arg("--help"));
    for command in [
        "record",
        "report",
        "export",
        "inspect",
        "demo",
        "table",
        "rsp",
        "stub",
        "Examples:",
    ] {
        assert!(run.stdout.contains(command), "{command}");
    }
}

#[test]
fn version_is_the_packages() {
    let run = Run::of(unspool().arg("--version"));
    assert_eq!(
        run.stdout.trim(),
        concat!("unspool ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_stub_gets_its_own_options() {
    let run = Run::of(unspool().args(["stub", "--version"]));
    run.succeeds();
    assert!(run.stdout.contains("stub"), "{}", run.stdout);
}

#[test]
fn a_programs_options_are_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture");
    let mut record = unspool();
    record.args(["record", "-q", "-o"]).arg(&file);
    let run = Run::of(record.args(["sh", "-c", "echo \"$0\"", "--sync"]));
    run.succeeds();
    assert_eq!(run.stdout, "--sync\n");
}

#[test]
fn a_process_is_no_program() {
    let own = std::process::id().to_string();
    let run = Run::of(unspool().args(["record", &own]));
    run.fails_with(1, &[&format!("use --attach {own}")]);
}

#[test]
fn wrong_command_lines_exit_with_2() {
    for args in [
        &[][..],
        &["record"],
        &["record", "--"],
        &["record", "--attach", "0"],
        &["record", "--attach", "x"],
        &["record", "--connect", "nowhere"],
        &["record", "--attach", "1", "--", "true"],
        &["record", "--attach", "1", "--connect", ":1", "--", "true"],
        &["inspect", "--connect", ":1", "--", "true"],
        &["record", "--exec", "/bin/true"],
        &["record", "--sycn", "true"],
        &["inspect", "--attach", "1", "1"],
        &["inspect", "sh"],
        &["inspect"],
        &["inspect", "--connect", ":0"],
        &["report", "--format", "xml"],
        &["frobnicate"],
    ] {
        let run = Run::of(unspool().args(args));
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        assert!(!run.stderr.is_empty() && run.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn an_inspection_cannot_fail_on_what_only_recordings_show() {
    let pid = std::process::id().to_string();
    for kind in [
        "convoy",
        "deadlock,lock-order",
        "unjoined:proved",
        "bottleneck",
    ] {
        let run = Run::of(unspool().args(["inspect", "--attach", &pid, "--fail-on", kind]));
        run.fails_with(1, &["--fail-on", "needs a recording"]);
        assert!(run.stdout.is_empty(), "{kind}: {}", run.stdout);
    }
}

/// If the reader closes the pipe, as `| head` does, that is no error and no panic.
#[test]
fn a_closed_pipe_ends_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    Run::of(&mut crate::running::record(&file, &["many", "20"])).succeeds();
    let mut child = unspool()
        .arg("report")
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(stderr, "");
}
