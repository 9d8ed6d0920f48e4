//! A look with a recording of the same process beside it: the proof says where its threads were created, as the recording does, and as
//! the source has it; a recording of another process is not believed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
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
use unspool_tests::{looking, report};

use super::BUILDS;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("waits::recorded::same-process", same_process),
        crate::trial("waits::recorded::another-process", another_process),
    ]
}

const LIMIT: Duration = Duration::from_secs(60);

/// A program that is recorded from before its first line until all its threads wait, and then goes on alone.
fn recorded(capture: &Path) -> Result<Waiting> {
    let (folder, file) = waiting::compile("abba.c", BUILDS[0].1)?;
    // What executes the program waits for a line, so that the recorder is there first.
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
    waiting.settle(HERE)?;
    kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
    let status = record.0.wait()?;
    ensure!(status.success(), "the recorder: {status}");
    Ok(waiting)
}

fn json(command: &mut Command) -> Result<Value> {
    let run = process::run(command, LIMIT)?.success()?;
    serde_json::from_slice(&run.stdout).with_context(|| run.to_string())
}

fn look(pid: u32, capture: &Path) -> Result<Value> {
    let mut command = report::unspool()?;
    command.args(["inspect", "--format", "json", "--attach", &pid.to_string()]);
    json(command.arg("--recording").arg(capture))
}

fn same_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let waiting = recorded(&capture)?;
    let mut command = report::unspool()?;
    command.arg("report").arg(&capture);
    let told = json(command.args(["--format", "json"]))?;
    let seen = look(waiting.pid, &capture)?;
    // abba.c: `start` of say.h is called in main, for `transfer` first.
    let threads = |of: &Value| -> Result<BTreeMap<u64, Value>> {
        let threads = of["threads"].as_array().context("threads")?.iter();
        let created = threads.filter(|thread| thread["tid"] != waiting.pid);
        let tid = |thread: &Value| thread["tid"].as_u64().context("a thread id");
        created
            .map(|thread| Ok((tid(thread)?, thread.clone())))
            .collect()
    };
    let (told, found) = (threads(&told)?, threads(&seen)?);
    ensure!(found.len() == 2, "{seen:#}");
    let mut lines = Vec::new();
    for (tid, thread) in &found {
        let known = told.get(tid).with_context(|| format!("{tid}: {told:#?}"))?;
        ensure!(
            thread["key"] == known["key"] && thread["creation"] == known["creation"],
            "{thread:#}\nrecorded {known:#}"
        );
        let frames = thread["creation"].as_array().context("creation")?;
        let functions: Vec<&str> = frames
            .iter()
            .filter_map(|f| f["function"].as_str())
            .collect();
        ensure!(functions.starts_with(&["start", "main"]), "{functions:?}");
        let by = thread["created_by"].as_str().unwrap_or_default();
        ensure!(by == format!("the main thread {}", waiting.pid), "{by:?}");
        lines.push(frames[1]["line"].as_u64());
    }
    let source = fs::read_to_string(unspool_tests::workspace::file("programs/waits/abba.c"))?;
    let source = source.lines().zip(1u64..);
    let calls: Vec<Option<u64>> = source
        .filter(|(text, _)| text.contains("start(transfer") || text.contains("start(audit"))
        .map(|(_, line)| Some(line))
        .collect();
    ensure!(
        lines == calls,
        "created at {lines:?}, in the source {calls:?}"
    );
    let capture = capture.to_str().context("a path")?;
    let options = ["--attach", &waiting.pid.to_string(), "--recording", capture];
    let text = looking::inspect(&options, "text")?.text();
    for name in ["transfer", "audit"] {
        let words = format!("({name}) was created by the main thread {}", waiting.pid);
        ensure!(text.contains(&words), "{words}\n{text}");
    }
    Ok(())
}

fn another_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    drop(recorded(&capture)?);
    let (program, file) = waiting::compile("abba.c", BUILDS[0].1)?;
    let waiting = Waiting::start(&mut Command::new(file), program)?;
    waiting.settle(HERE)?;
    let seen = look(waiting.pid, &capture)?;
    let threads = seen["threads"].as_array().context("threads")?;
    let none = |thread: &&Value| thread["creation"].as_array().is_some_and(Vec::is_empty);
    ensure!(threads.iter().filter(none).count() == 3, "{seen:#}");
    let errors = seen["errors"].to_string();
    ensure!(
        errors.contains("Nothing was taken from the recording"),
        "{errors}"
    );
    Ok(())
}
