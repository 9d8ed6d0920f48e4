//! The command under test, and its JSON report.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::backtrace::{Backtrace, Frame};
use crate::process::{self, Run};
use crate::workspace;

/// Size of the part of an object that contains its futex words, in bytes.
const OBJECT: u64 = 64;

/// The parts of `unspool report --format json` that tests need.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// Must be 1.
    pub schema_version: u32,
    /// All threads, including the main thread.
    pub threads: Vec<Thread>,
    /// The processes that the program started.
    pub processes: Vec<Process>,
    /// The report's notes.
    pub notes: Vec<Value>,
}

/// A process that the program started.
#[derive(Debug, Deserialize)]
pub struct Process {
    /// Its threads.
    pub threads: Vec<ProcessThread>,
}

/// A thread of such a process.
#[derive(Debug, Deserialize)]
pub struct ProcessThread {
    /// The identity's key; none for first threads.
    pub key: Option<String>,
    /// The creation backtrace; empty for first threads.
    pub creation: Vec<ReportFrame>,
    /// Where the thread function is.
    pub function_place: Option<FunctionPlace>,
}

/// The place of a thread function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct FunctionPlace {
    /// Path of the module.
    pub module: String,
    /// Its address in the file.
    pub svma: u64,
}

/// One thread.
#[derive(Debug, Deserialize)]
pub struct Thread {
    /// The kernel's id. Under qemu-user, unknown for threads that lived between two stops.
    pub tid: Option<u64>,
    /// The name in `/proc`, if known.
    pub name: Option<String>,
    /// The identity's key.
    pub key: String,
    /// The thread function.
    pub function: Option<String>,
    /// Where the thread function is.
    pub function_place: Option<FunctionPlace>,
    /// The creator; none for the main thread.
    pub creator_tid: Option<u64>,
    /// The creation backtrace.
    pub creation: Vec<ReportFrame>,
    /// The kind of its end.
    pub end: String,
}

/// One frame of a creation backtrace.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct ReportFrame {
    pub function: Option<String>,
    pub offset: Option<u64>,
    pub module: Option<String>,
    pub svma: Option<u64>,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub inlined: bool,
    pub provenance: String,
}

impl Report {
    /// Threads created during the recording.
    pub fn created(&self) -> impl Iterator<Item = &Thread> {
        self.threads
            .iter()
            .filter(|thread| !thread.creation.is_empty())
    }

    /// Their creation backtraces.
    pub fn creations(&self) -> Vec<Backtrace> {
        self.created().map(Thread::backtrace).collect()
    }

    /// The creation backtraces of the threads of started processes.
    pub fn creations_in_processes(&self) -> Vec<Backtrace> {
        let threads = self.processes.iter().flat_map(|process| &process.threads);
        let stacks = threads.map(|thread| &thread.creation);
        let stacks = stacks.filter(|stack| !stack.is_empty());
        stacks.map(|stack| comparable(stack)).collect()
    }
}

impl Thread {
    /// The creation backtrace in comparable form.
    pub fn backtrace(&self) -> Backtrace {
        comparable(&self.creation)
    }
}

fn comparable(stack: &[ReportFrame]) -> Backtrace {
    let frames = stack.iter().map(|frame| Frame {
        module: frame
            .module
            .as_deref()
            .map_or("?", |path| path.rsplit('/').next().unwrap_or(path))
            .to_owned(),
        svma: frame.svma.unwrap_or(0),
        inlined: frame.inlined,
        function: frame.function.clone(),
        source: frame.file.clone().zip(frame.line),
    });
    frames.collect()
}

/// `unspool` with a clean environment.
pub fn unspool() -> Result<Command> {
    let mut command = Command::new(workspace::unspool()?);
    command
        .env("NO_COLOR", "1")
        .env_remove("RUST_BACKTRACE")
        .env_remove("LD_LIBRARY_PATH")
        // Some distributions set it for all users.
        .env_remove("DEBUGINFOD_URLS");
    Ok(command)
}

/// Runs `unspool record -o CAPTURE [options] -- PROGRAM ARGUMENTS` to its end.
pub fn record(capture: &Path, options: &[&str], program: &[&str]) -> Result<Run> {
    let mut command = unspool()?;
    command.arg("record").arg("-o").arg(capture).args(options);
    // These tests need every creation. Other tests check creations omitted because of the budget.
    if !options.contains(&"--connect") {
        command.args(["--budget", "none"]);
    }
    if !program.is_empty() {
        command.arg("--").args(program);
    }
    process::run(&mut command, Duration::from_secs(120))
}

/// The JSON report of a capture, with options such as `--sysroot DIR`.
pub fn report(capture: &Path, options: &[&str]) -> Result<Report> {
    let report: Report = serde_json::from_value(json(capture, options)?)
        .context("not the JSON docs/reference/report-json.md describes")?;
    ensure!(
        report.schema_version == 1,
        "schema version {}",
        report.schema_version
    );
    Ok(report)
}

/// The same as a JSON value.
pub fn json(capture: &Path, options: &[&str]) -> Result<Value> {
    let mut command = unspool()?;
    command
        .arg("report")
        .arg(capture)
        .args(["--format", "json"])
        .args(options);
    let run = process::run(&mut command, Duration::from_secs(120))?.success()?;
    serde_json::from_slice(&run.stdout).with_context(|| format!("no JSON: {run}"))
}

/// The objects in a JSON report that are the program's object of this kind at this address, or all
/// of the kind if the address is 0. A thread may wait at any word of an object, so a recorded
/// address belongs to the nearest `known` object before it.
pub fn objects<'a>(
    report: &'a Value,
    kind: &'a str,
    address: u64,
    known: &'a BTreeSet<u64>,
) -> impl Iterator<Item = &'a Value> {
    let all = report["objects"].as_array().into_iter().flatten();
    all.filter(move |object| {
        let at = object["address"].as_u64().unwrap_or(0);
        let nearest = known.range(..=at).next_back();
        let inside = nearest == Some(&address) && at - address < OBJECT;
        object["kind"] == kind && (address == 0 || inside)
    })
}

/// Whether the capture of a running recording has such a note.
pub fn has_note(capture: &Path, sign: &str) -> bool {
    let has = |note: &Value| note.to_string().contains(sign);
    sign.is_empty()
        || report_while_recording(capture).is_ok_and(|report| report.notes.iter().any(has))
}

/// The report of a running recording, which states that it is incomplete.
pub fn report_while_recording(capture: &Path) -> Result<Report> {
    let mut command = unspool()?;
    command.arg("report").arg(capture);
    command.args(["--format", "json"]);
    let run = process::run(&mut command, Duration::from_secs(60))?;
    Ok(serde_json::from_slice(&run.stdout)?)
}
