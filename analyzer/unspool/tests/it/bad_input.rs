//! Bad input: one clear sentence, a non-zero exit code, and no harm done.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::running::{Live, Run, build, record, unspool, wait_for};

fn run_program(program: &Path) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let run = Run::of(
        unspool()
            .args(["record", "-o"])
            .arg(dir.path().join("c"))
            .arg("--")
            .arg(program),
    );
    assert!(
        !dir.path().join("c").exists(),
        "no recording is left of a program that did not run"
    );
    run
}

#[test]
fn programs_that_cannot_run() {
    run_program(Path::new("/nonexistent/program"))
        .fails_with(1, &["no such program", "/nonexistent/program"]);
    run_program(Path::new("no-such-program")).fails_with(1, &["no such program", "PATH"]);
    run_program(Path::new("/tmp")).fails_with(1, &["directory"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("program");
    fs::write(&file, "hello").unwrap();
    run_program(&file).fails_with(1, &["not executable", "chmod"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    run_program(&file).fails_with(1, &["ELF"]);
    // An ARM header is recognized before anything is started.
    let mut header = b"\x7fELF\x01\x01\x01".to_vec();
    header.resize(18, 0);
    header.extend([40, 0]);
    fs::write(&file, header).unwrap();
    run_program(&file).fails_with(1, &["32-bit ARM", "--connect"]);
}

#[test]
fn a_damaged_program() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("program");
    let mut bytes = fs::read(env!("CARGO_BIN_EXE_unspool")).unwrap();
    bytes.truncate(100);
    fs::write(&file, bytes).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    run_program(&file).fails_with(1, &["the stub could not start the program or attach to it"]);
}

#[test]
fn processes_that_cannot_be_attached() {
    let attach =
        |pid: &str| Run::of(unspool().args(["record", "-o", "/dev/null", "--attach", pid]));
    attach("4194304").fails_with(1, &["no process 4194304"]);
    let mut program = Live::subject(["until-signal"]);
    program.line();
    let mut first = Live::start(unspool().args([
        "record",
        "-q",
        "-o",
        "/dev/null",
        "--attach",
        &program.pid().to_string(),
    ]));
    let status = format!("/proc/{}/status", program.pid());
    let traced = || {
        let status = std::fs::read_to_string(&status).expect("it runs");
        (!status.contains("TracerPid:\t0\n")).then_some(())
    };
    assert!(wait_for(std::time::Duration::from_secs(60), traced).is_some());
    attach(&program.pid().to_string()).fails_with(1, &["unspool records or inspects it"]);
    crate::running::signal(first.pid(), nix::sys::signal::Signal::SIGINT);
    assert_eq!(first.wait().code(), Some(0));
}

#[test]
fn a_static_program_without_symbols() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("static");
    build(&["-static", "-s", "-Wl,--build-id"], &program);
    let file = dir.path().join("c");
    let mut record = unspool();
    record
        .args(["record", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&program);
    let run = Run::of(record.args(["many", "2"]));
    run.succeeds();
    let report = crate::running::report(&file);
    assert_eq!(crate::running::created(&report).len(), 2);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("no symbols") && notes.contains("--debug-dir"),
        "{notes}"
    );
}

#[test]
fn a_static_program_with_symbols() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("static");
    build(&["-static", "-g"], &program);
    let file = dir.path().join("c");
    Run::of(
        unspool()
            .args(["record", "-o"])
            .arg(&file)
            .arg("--")
            .arg(&program)
            .args(["many", "2"]),
    )
    .succeeds();
    assert_eq!(
        crate::running::created(&crate::running::report(&file)).len(),
        2
    );
}

#[test]
fn places_that_cannot_be_written() {
    let to = |file: &str| Run::of(&mut record(Path::new(file), &["exit", "0"]));
    to("/nonexistent/c").fails_with(1, &["no directory /nonexistent"]);
    to("/tmp").fails_with(1, &["directory", "-o"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("precious");
    fs::write(&file, "my thesis").unwrap();
    to(file.to_str().unwrap()).fails_with(1, &["not a recording", "-o"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "my thesis");
}

#[test]
fn files_that_are_no_captures() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let show = || Run::of(unspool().arg("report").arg(&file));
    show().fails_with(1, &["no recording", "unspool record"]);
    fs::write(&file, "").unwrap();
    show().fails_with(1, &["empty"]);
    fs::write(&file, "hello, world, this is text").unwrap();
    show().fails_with(1, &["not an Unspool recording", file.to_str().unwrap()]);
    Run::of(unspool().args(["report", "--sysroot", "/nonexistent"]))
        .fails_with(1, &["--sysroot", "no such directory"]);
}

#[test]
fn a_truncated_capture_shows_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    Run::of(&mut record(&file, &["many", "5"])).succeeds();
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 20]).unwrap();
    let run = Run::of(unspool().arg("report").arg(&file));
    run.fails_with(1, &["cut"]);
    assert!(run.stdout.contains("incomplete"), "{}", run.stdout);
}

#[test]
fn no_server_listens() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    Run::of(unspool().args([
        "record",
        "-o",
        "/dev/null",
        "--connect",
        &format!(":{free}"),
    ]))
    .fails_with(1, &["cannot connect", "check the address"]);
}
