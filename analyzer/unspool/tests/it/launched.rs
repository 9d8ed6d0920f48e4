//! A program started by `record` behaves as without it: input, output, exit code and signals.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::running::{Run, build, created, record, report, subject, unspool};

#[test]
fn input_and_output_are_the_programs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut child = record(&file, &["echo"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"one\ntwo\n")
        .unwrap();
    let run = Run::from(child.wait_with_output().unwrap());
    run.succeeds();
    assert_eq!(run.stdout, "one\ntwo\n");
    assert!(run.stderr.starts_with("to stderr\n"), "{}", run.stderr);
    assert!(
        run.stderr.contains("short_life"),
        "the report is on standard error: {}",
        run.stderr
    );
}

/// Records without a report.
fn record_quietly(options: &[&str], file: &Path) -> Run {
    let mut command = unspool();
    command.args(["record", "-q"]).args(options).arg("-o");
    command.arg(file).arg("--").arg(subject());
    let run = Run::of(command.args(["exit", "0"]));
    run.succeeds();
    run
}

#[test]
fn quiet_leaves_the_report_out() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let run = record_quietly(&[], &file);
    assert_eq!(run.stderr, "");
    assert_eq!(created(&report(&file)).len(), 1);
}

#[test]
fn quiet_keeps_warnings_about_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let run = record_quietly(&["--trace", "short_lief"], &dir.path().join("c"));
    let begin = "unspool: warning: --trace 'short_lief': no function of that name";
    assert!(run.stderr.starts_with(begin), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn exit_codes_pass() {
    let dir = tempfile::tempdir().unwrap();
    for code in [0, 1, 42, 255] {
        let file = dir.path().join(format!("c{code}"));
        let run = Run::of(&mut record(&file, &["exit", &code.to_string()]));
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        let report = report(&file);
        let threads = created(&report);
        assert_eq!(threads.len(), 1);
        assert_eq!(threads[0]["function"], "short_life");
        assert_eq!(threads[0]["creation"][0]["function"], "one_thread");
    }
}

#[test]
fn fatal_signals_give_128_and_more() {
    let dir = tempfile::tempdir().unwrap();
    let crash = dir.path().join("crash");
    let run = Run::of(&mut record(&crash, &["crash"]));
    assert_eq!(run.code, Some(128 + 11), "{}", run.stderr);
    assert_eq!(created(&report(&crash)).len(), 1);
    for signal in [6, 9, 15, 10] {
        let file = dir.path().join(format!("s{signal}"));
        let run = Run::of(&mut record(&file, &["raise", &signal.to_string()]));
        assert_eq!(run.code, Some(128 + signal), "{}", run.stderr);
    }
}

#[test]
fn handled_signals_reach_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::of(&mut record(&dir.path().join("a"), &["signals"]));
    run.succeeds();
    assert_eq!(run.stdout, "60 signals\n", "{}", run.stderr);
    let run = Run::of(&mut record(&dir.path().join("b"), &["trap"]));
    run.succeeds();
    assert_eq!(run.stdout, "1 trap\n");
}

#[test]
fn forked_children_run_free_of_probes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let run = Run::of(&mut record(&file, &["fork"]));
    assert_eq!(run.code, Some(7), "{}", run.stderr);
    assert_eq!(
        created(&report(&file)).len(),
        2,
        "the parent's threads, before and after"
    );
    let run = Run::of(&mut record(&dir.path().join("v"), &["vfork"]));
    assert_eq!(run.code, Some(6), "{}", run.stderr);
}

#[test]
fn an_exec_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let run = Run::of(&mut record(&file, &["exec"]));
    assert_eq!(run.code, Some(5), "{}", run.stderr);
    let report = report(&file);
    // One thread of each program. Both have their creator's name, and an exec sets the latter.
    let threads = created(&report);
    let names: Vec<_> = threads.iter().map(|thread| &thread["name"]).collect();
    assert_eq!(names, ["before", "subject"]);
}

#[test]
fn alike_threads_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    Run::of(&mut record(&file, &["overlap"])).succeeds();
    let report = report(&file);
    assert_eq!(created(&report).len(), 8);
    for thread in created(&report) {
        assert_eq!(thread["end"], "joined", "{thread}");
    }
}

#[test]
fn the_demo_works() {
    let run = Run::of(unspool().arg("demo"));
    run.succeeds();
    for word in [
        "billing",
        "shipping",
        "write_log",
        "40 × connection",
        "demo/orders.c:",
        "detached",
    ] {
        assert!(
            run.stdout.contains(word),
            "{word} is missing in:\n{}",
            run.stdout
        );
    }
    assert!(
        !run.stdout.contains(env!("CARGO_MANIFEST_DIR")),
        "{}",
        run.stdout
    );
}

#[test]
fn programs_are_found_in_path_and_scripts_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let run = Run::of(unspool().args(["record", "-o"]).arg(&file).args([
        "--",
        "sh",
        "-c",
        "echo $0 $1; exit 9",
        "a",
        "b",
    ]));
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(9), "a b\n"),
        "{}",
        run.stderr
    );
}

/// The budget does not count creations, so that no thread and no stack is missing.
#[test]
fn the_smallest_budget_keeps_every_creation() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut command = unspool();
    command
        .args(["record", "--budget", "0.1%", "-o"])
        .arg(&file);
    let run = Run::of(command.arg("--").arg(subject()).args(["many", "300"]));
    run.succeeds();
    let report = report(&file);
    assert_eq!(created(&report).len(), 300);
    assert_eq!(report["threads"].as_array().unwrap().len(), 301);
    let paused = report["recording"]["paused_probes"].as_array().unwrap();
    assert!(
        paused.iter().all(|probe| {
            !probe["function"]
                .as_str()
                .unwrap()
                .contains("pthread_create")
        }),
        "{paused:?}"
    );
    assert!(!run.stderr.contains("pthread_create"), "{}", run.stderr);
    assert_eq!(report["recording"]["complete"], true);
}

#[test]
fn an_older_recording_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    Run::of(&mut record(&file, &["many", "3"])).succeeds();
    Run::of(&mut record(&file, &["many", "1"])).succeeds();
    assert_eq!(created(&report(&file)).len(), 1);
    assert_eq!(created(&report(&dir.path().join("c.old"))).len(), 3);
    // A start that fails leaves the existing recording in place.
    Run::of(
        unspool()
            .args(["record", "-o"])
            .arg(&file)
            .args(["--", "/nonexistent"]),
    )
    .fails_with(1, &["/nonexistent"]);
    assert_eq!(created(&report(&file)).len(), 1);
    assert_eq!(created(&report(&dir.path().join("c.old"))).len(), 3);
}

#[test]
fn debug_information_of_other_code_is_not_called_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (bare, source, object) = ("bare", "other.c", "other.o");
    let [bare, source, object] = [bare, source, object].map(|name| dir.path().join(name));
    std::fs::write(&source, "int other(void) { return 1; }\n").unwrap();
    let mut compiler = std::process::Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    compiler.args(["-g", "-c", "-o"]).arg(&object).arg(&source);
    assert!(compiler.status().unwrap().success());
    let note = |options: &[&str]| {
        build(options, &bare);
        let file = dir.path().join("c");
        let mut command = unspool();
        command.args(["record", "-o"]).arg(&file).arg("--");
        Run::of(command.arg(&bare).args(["exit", "0"])).succeeds();
        let notes = report(&file)["notes"].as_array().unwrap().clone();
        let notes = notes.iter().filter_map(|note| note.as_str());
        notes
            .filter(|note| note.contains("bare"))
            .collect::<String>()
    };
    assert_eq!(
        note(&["-O1"]),
        "No debug information (-g) was found for bare, so frames there have no source lines."
    );
    assert_eq!(
        note(&["-O1", object.to_str().unwrap()]),
        "The functions seen are not in the debug information of bare, so frames there have no source lines."
    );
    assert_eq!(note(&["-g", object.to_str().unwrap()]), "");
}
