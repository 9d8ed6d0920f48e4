//! Records and inspects processes that are already running, which must be unharmed afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::running::{
    Live, Run, created, report, report_of_cut, signal, unspool, wait_for, wait_until_recorded,
};

/// Waits until the first instructions of the program's `pthread_create` are those it has printed.
fn is_untouched(pid: i32, ready: &str) -> bool {
    let mut words = ready.split_whitespace().skip(1);
    let address = u64::from_str_radix(words.next().unwrap().trim_start_matches("0x"), 16).unwrap();
    let wanted = words.next().unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let same = || {
        let mut bytes = [0; 16];
        memory.read_exact_at(&mut bytes, address).ok()?;
        let seen: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        (seen == wanted).then_some(())
    };
    wait_for(Duration::from_secs(30), same).is_some()
}

fn is_traced(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    !status.contains("TracerPid:\t0\n")
}

/// Asserts that the program continues and ends as without a recorder.
fn ends_well(mut program: Live) {
    signal(program.pid(), Signal::SIGTERM);
    assert_eq!(program.line(), "signal 15, 1 in all");
    assert_eq!(program.wait().code(), Some(3));
}

/// Records a program that is already running.
fn attached(program: &Live, file: &Path, options: &[&str]) -> Live {
    Live::start(
        unspool()
            .args(["record", "-o"])
            .arg(file)
            .args(options)
            .args(["--attach", &program.pid().to_string()])
            .stderr(Stdio::null()),
    )
}

/// The threads from before the recording, with the function that each runs.
fn earlier(report: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let threads = report["threads"].as_array().expect("threads");
    let earlier = threads.iter().filter(|thread| thread["origin"] == "before");
    let mut earlier: Vec<String> = earlier
        .map(|thread| format!("{}: {}", text(&thread["name"]), text(&thread["function"])))
        .collect();
    earlier.sort();
    earlier
}

#[test]
fn recording_an_attached_process_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut program = Live::subject(["until-signal"]);
    let ready = program.line();
    let mut recorder = attached(&program, &file, &[]);
    wait_until_recorded(&file, |report| created(report).len() > 3);
    signal(recorder.pid(), Signal::SIGINT);
    assert_eq!(recorder.wait().code(), Some(0));
    assert!(!is_traced(program.pid()));
    assert!(is_untouched(program.pid(), &ready));
    let report = report(&file);
    assert!(created(&report).len() > 3, "{report}");
    // One of the short-lived threads may have been there too.
    let mut earlier = earlier(&report);
    earlier.retain(|thread| thread.starts_with("worker"));
    assert_eq!(earlier, ["worker-a: long_life", "worker-b: long_life"]);
    ends_well(program);
}

#[test]
fn a_recording_ends_after_its_duration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut program = Live::subject(["until-signal"]);
    let ready = program.line();
    let mut recorder = attached(&program, &file, &["--duration", "0.5"]);
    assert_eq!(recorder.wait().code(), Some(0));
    assert!(is_untouched(program.pid(), &ready));
    let lasted_ns = report(&file)["recording"]["duration_ns"].as_u64();
    assert!(
        lasted_ns.is_some_and(|ns| ns >= 500_000_000),
        "{lasted_ns:?}"
    );
    ends_well(program);
}

#[test]
fn a_busy_process_with_many_threads_is_detached_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut program = Live::subject(["crowd"]);
    assert_eq!(program.line(), "ready");
    let mut recorder = attached(&program, &file, &[]);
    // Perhaps none of the short-lived threads was there.
    wait_until_recorded(&file, |report| earlier(report).len() >= 1000);
    signal(recorder.pid(), Signal::SIGINT);
    assert_eq!(recorder.wait().code(), Some(0));
    assert!(!is_traced(program.pid()));
    let seen = earlier(&report(&file));
    let waiting = seen.iter().filter(|thread| thread.ends_with(": waits"));
    assert_eq!(waiting.count(), 1000);
    signal(program.pid(), Signal::SIGTERM);
    assert_eq!(program.wait().code(), Some(3));
}

/// A proxy to the server at `port` on which interrupts get lost, as with a gdbserver whose attached
/// program does not lead a process group. Returns its port.
fn without_interrupts(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut client = listener.accept().unwrap().0;
        let mut back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            let mut packets = bytes[..count].to_vec();
            packets.retain(|byte| *byte != 3);
            server.write_all(&packets).unwrap();
        }
        let _ = server.shutdown(Shutdown::Write);
    });
    own
}

#[test]
fn a_process_that_its_server_cannot_interrupt_is_detached_at_its_next_creation() {
    let dir = tempfile::tempdir().unwrap();
    let (file, said) = (dir.path().join("c"), dir.path().join("said"));
    let mut program = Live::subject(["until-signal"]);
    let ready = program.line();
    let mut server = unspool();
    server.args(["stub", "--once", "--attach", "127.0.0.1:0"]);
    server.arg(program.pid().to_string()).stderr(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let port = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("Listening on port ")?.parse().ok())
        .unwrap();
    let mut recorder = Live::start(
        unspool()
            .args(["record", "-o"])
            .arg(&file)
            .args([
                "--connect",
                &format!("127.0.0.1:{}", without_interrupts(port)),
            ])
            .stderr(File::create(&said).unwrap()),
    );
    wait_until_recorded(&file, |report| created(report).len() > 3);
    signal(recorder.pid(), Signal::SIGINT);
    let code = recorder.wait().code();
    assert_eq!(code, Some(0), "{}", std::fs::read_to_string(&said).unwrap());
    assert!(server.wait().unwrap().success());
    assert!(!is_traced(program.pid()));
    assert!(is_untouched(program.pid(), &ready));
    assert!(created(&report(&file)).len() > 3);
    ends_well(program);
}

#[test]
fn an_attached_process_may_end_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut program = Live::subject(["until-signal"]);
    program.line();
    let mut recorder = attached(&program, &file, &[]);
    wait_until_recorded(&file, |report| created(report).len() > 2);
    ends_well(program);
    assert_eq!(recorder.wait().code(), Some(3));
    assert!(created(&report(&file)).len() > 2);
}

#[test]
fn a_killed_recorder_leaves_the_attached_process_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let mut program = Live::subject(["until-signal"]);
    let ready = program.line();
    let mut recorder = attached(&program, &file, &[]);
    wait_until_recorded(&file, |report| created(report).len() > 3);
    signal(recorder.pid(), Signal::SIGKILL);
    recorder.wait();
    assert!(
        wait_for(Duration::from_secs(30), || (!is_traced(program.pid()))
            .then_some(()))
        .is_some()
    );
    assert!(is_untouched(program.pid(), &ready));
    assert!(created(&report_of_cut(&file)).len() > 2);
    ends_well(program);
}

#[test]
fn inspect_shows_all_threads_and_detaches() {
    let mut program = Live::subject(["until-signal"]);
    let ready = program.line();
    let pid = program.pid().to_string();
    std::thread::sleep(Duration::from_millis(50));
    let run = Run::of(unspool().args(["inspect", "--attach", &pid, "--format", "json"]));
    run.succeeds();
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let names: Vec<&str> = report["threads"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|t| t["name"].as_str())
        .collect();
    assert!(
        names.contains(&"worker-a") && names.contains(&"worker-b"),
        "{names:?}"
    );
    let run = Run::of(unspool().args(["inspect", &pid]));
    run.succeeds();
    assert!(
        run.stdout.contains("long_life") && run.stdout.contains("pause_ms"),
        "{}",
        run.stdout
    );
    assert!(!is_traced(program.pid()));
    assert!(is_untouched(program.pid(), &ready));
    ends_well(program);
}
