//! Tests an inspection that uses a recording of the same process, finished or still being written.
//!
//! The proof then shows where the threads were created, as in the recording and in the source. A
//! recording of another process is rejected.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use unspool_tests::process::{self, Background};
use unspool_tests::waiting::{self, HERE, Waiting};
use unspool_tests::{inspection, report, workspace};

use super::BUILDS;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("waits::recorded::same-process", same_process),
        crate::trial("waits::recorded::cxx", cxx),
        crate::trial("waits::recorded::being-written", being_written),
        crate::trial("waits::recorded::another-process", another_process),
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

/// A program that is recorded from before its first line until all its threads wait, and then
/// continues alone.
fn recorded(capture: &Path, source: &str, command: &[&str]) -> Result<Waiting> {
    let (folder, file) = waiting::compile(source, command)?;
    // The shell that executes the program waits for a line, so that the recorder attaches first.
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; exec \"$0\""]).arg(file);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Background(process::start(&mut shell)?);
    let pid = program.0.id();
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--attach", &pid.to_string(), "-o"]);
    let mut record = Background(process::start(record.arg(capture))?);
    process::wait_until("the recorder comes", LIMIT, || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.contains("TracerPid:") && !status.contains("TracerPid:\t0\n")
    })?;
    let input = program.0.stdin.as_mut().context("piped")?;
    input.write_all(b"\n")?;
    let waiting = Waiting::listen_to(program, Some(folder))?;
    waiting.wait_until_blocked(HERE)?;
    kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
    record.ends_well("the recorder", LIMIT)?;
    Ok(waiting)
}

fn json(command: &mut Command) -> Result<Value> {
    let run = process::run(command, LIMIT)?.success()?;
    serde_json::from_slice(&run.stdout).with_context(|| run.to_string())
}

fn report_of(capture: &Path) -> Result<Value> {
    let mut command = report::unspool()?;
    command.arg("report").arg(capture);
    json(command.args(["--format", "json"]))
}

/// The result of an inspection with this recording.
fn look(whom: &[&str], capture: &Path) -> Result<Value> {
    let mut command = report::unspool()?;
    command.args(["inspect", "--format", "json"]).args(whom);
    json(command.arg("--recording").arg(capture))
}

/// The threads of abba.c except its main thread.
fn created(of: &Value, pid: u32) -> Result<BTreeMap<u64, Value>> {
    let threads = of["threads"].as_array().context("threads")?.iter();
    let created = threads.filter(|thread| thread["tid"] != pid);
    let tid = |thread: &Value| thread["tid"].as_u64().context("a thread id");
    created
        .map(|thread| Ok((tid(thread)?, thread.clone())))
        .collect()
}

/// Checks that the result shows where the threads of abba.c were created in its source.
fn as_in_the_source(seen: &Value, pid: u32) -> Result<()> {
    let mut lines = Vec::new();
    for thread in created(seen, pid)?.values() {
        let frames = thread["creation"].as_array().context("creation")?;
        let functions: Vec<&str> = frames
            .iter()
            .filter_map(|f| f["function"].as_str())
            .collect();
        // `start` of say.h is called in main, for `transfer` first.
        ensure!(functions.starts_with(&["start", "main"]), "{functions:?}");
        let by = thread["created_by"].as_str().unwrap_or_default();
        ensure!(by == format!("the main thread {pid}"), "{by:?}");
        lines.push(frames[1]["line"].as_u64());
    }
    let source = fs::read_to_string(workspace::file("programs/waits/abba.c"))?;
    let source = source.lines().zip(1u64..);
    let calls: Vec<Option<u64>> = source
        .filter(|(text, _)| text.contains("start(transfer") || text.contains("start(audit"))
        .map(|(_, line)| Some(line))
        .collect();
    ensure!(
        lines == calls,
        "created at {lines:?}, in the source {calls:?}"
    );
    Ok(())
}

/// Checks that the result describes the created threads like the recording.
fn as_recorded(seen: &Value, told: &Value, pid: u32) -> Result<()> {
    let (told, seen) = (created(told, pid)?, created(seen, pid)?);
    ensure!(told.keys().eq(seen.keys()), "{seen:#?}\n{told:#?}");
    for (tid, thread) in &seen {
        let known = &told[tid];
        ensure!(
            thread["key"] == known["key"] && thread["creation"] == known["creation"],
            "{thread:#}\nrecorded {known:#}"
        );
    }
    Ok(())
}

fn same_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let waiting = recorded(&capture, "abba.c", BUILDS[0].1)?;
    let pid = waiting.pid.to_string();
    let seen = look(&["--attach", &pid], &capture)?;
    as_in_the_source(&seen, waiting.pid)?;
    let told = report_of(&capture)?;
    as_recorded(&seen, &told, waiting.pid)?;
    let mut sleep = Command::new("sleep");
    let sleep = Background(process::start(sleep.arg("60"))?);
    let pids = format!("{},{pid}", sleep.0.id());
    let seen = look(&["--attach", &pids], &capture)?;
    as_recorded(&seen["processes"][0], &told, waiting.pid)?;
    let capture = capture.to_str().context("a path")?;
    let options = ["--attach", &pid, "--recording", capture];
    let text = inspection::inspect(&options, "text")?.text();
    for name in ["transfer", "audit"] {
        let words = format!("({name}) was created by the main thread {pid}");
        ensure!(text.contains(&words), "{words}\n{text}");
    }
    Ok(())
}

/// All threads of a C++ program start in the same unnamed function of libstdc++, into which their
/// work is inlined.
fn cxx() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    // Without tail calls, which leave no frames on the stack.
    let command = ["g++", "-std=c++20", "-O1", "-pthread"];
    let waiting = recorded(&capture, "cxx.cpp", &command)?;
    let seen = look(&["--attach", &waiting.pid.to_string()], &capture)?;
    as_recorded(&seen, &report_of(&capture)?, waiting.pid)?;
    let threads = created(&seen, waiting.pid)?;
    let names = threads.values().filter_map(|t| t["function"].as_str());
    // In the order in which main creates them.
    let lambda = |number: u32| format!("main::{{lambda()#{number}}}");
    let mut expected = vec!["ahead".to_owned(), "back".into()];
    expected.extend((1..=4).map(lambda));
    expected.extend(["use".into(), lambda(5)]);
    let names: Vec<&str> = names.collect();
    ensure!(names == expected, "{names:#?}");
    let by = format!("the main thread {}", waiting.pid);
    let known = threads.values().all(|t| t["created_by"] == *by);
    ensure!(known, "{threads:#?}");
    Ok(())
}

/// A stub serves the recorder and the inspections; the recording continues and ends well.
fn being_written() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let (program, file) = waiting::compile("abba.c", BUILDS[0].1)?;
    let mut stub = Command::new(workspace::stub()?);
    stub.arg("127.0.0.1:0").arg(file);
    stub.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut stub = Background(process::start(&mut stub)?);
    let mut says = BufReader::new(stub.0.stderr.take().context("piped")?).lines();
    let mut number = |before: &str| -> Result<u32> {
        let line = says.next().transpose()?.unwrap_or_default();
        let (_, number) = line.split_once(before).with_context(|| line.clone())?;
        Ok(number.parse()?)
    };
    let pid = number("pid = ")?;
    let address = format!("127.0.0.1:{}", number("Listening on port ")?);
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--connect", &address, "-o"]);
    let mut record = Background(process::start(record.arg(&capture))?);
    let mut waiting = Waiting::listen_to(stub, Some(program))?;
    waiting.pid = pid;
    waiting.wait_until_blocked(HERE)?;

    let whom = ["--connect", address.as_str()];
    let mut seen = Value::Null;
    process::wait_until("the file has both creations", LIMIT, || {
        seen = look(&whom, &capture).unwrap_or_default();
        let by = |thread: &Value| thread["created_by"].is_string();
        created(&seen, pid).is_ok_and(|threads| threads.values().filter(|t| by(t)).count() == 2)
    })?;
    as_in_the_source(&seen, pid)?;
    let proof = &seen["findings"][0];
    ensure!(
        proof["kind"] == "deadlock" && proof["proved"] == true,
        "{seen:#}"
    );
    ensure!(record.0.try_wait()?.is_none(), "the recording has ended");
    kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
    record.ends_well("the recording", LIMIT)?;
    as_recorded(&seen, &report_of(&capture)?, pid)
}

fn another_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    drop(recorded(&capture, "abba.c", BUILDS[0].1)?);
    let (program, file) = waiting::compile("abba.c", BUILDS[0].1)?;
    let waiting = Waiting::start(&mut Command::new(file), program)?;
    waiting.wait_until_blocked(HERE)?;
    let seen = look(&["--attach", &waiting.pid.to_string()], &capture)?;
    let threads = seen["threads"].as_array().context("threads")?;
    let none = |thread: &&Value| thread["creation"].as_array().is_some_and(Vec::is_empty);
    ensure!(threads.iter().filter(none).count() == 3, "{seen:#}");
    let errors = seen["errors"].to_string();
    ensure!(errors.contains("The recording was not used"), "{errors}");
    Ok(())
}
