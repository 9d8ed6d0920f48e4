//! The waits in `unspool inspect --format json`, and their comparison with a program's own
//! statements.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::process::{self, Run};
use crate::report;
use crate::waiting::{StatedFinding, Waiting};

/// The output of `inspect` (docs/reference/report-json.md).
#[derive(Debug, Deserialize)]
pub struct Inspection {
    /// All threads.
    pub threads: Vec<Thread>,
    /// Other processes for which these wait.
    pub processes: Vec<Process>,
    /// The findings.
    pub findings: Vec<Finding>,
    /// The notes.
    pub notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Process {
    pub pid: u32,
    pub program: String,
    pub threads: Vec<Thread>,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Thread {
    pub tid: u64,
    pub function: Option<String>,
    pub state: Option<String>,
    pub wait: Option<Wait>,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Wait {
    pub kind: String,
    pub address: u64,
    pub object: Option<String>,
    pub flavor: Vec<String>,
    pub holders: Vec<u64>,
    pub readers: Option<u32>,
    pub mutex: Option<Object>,
    pub timed: bool,
    pub shared: bool,
    pub proved: bool,
    pub unknown: Option<String>,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Object {
    pub address: u64,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Finding {
    pub kind: String,
    pub proved: bool,
    pub threads: Vec<u64>,
    pub text: String,
}

/// The build of a program and the kind of inspection, which decide what can be known.
#[derive(Debug, Clone, Copy)]
pub struct Conditions {
    /// The library with its primitives.
    pub library: Library,
    /// Whether it has symbols.
    pub named: bool,
    /// The state of all waiting threads.
    pub state: &'static str,
    /// Upper limit of addresses of the program's own variables.
    pub low: u64,
    /// Whether it was stopped during the inspection. Otherwise only findings are checked a second
    /// time.
    pub stands: bool,
}

/// The library with a program's primitives, which decides what can be known about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// glibc records the holder of a lock, but not readers.
    Glibc,
    /// musl records it only for the less usual kinds of mutexes.
    Musl,
    /// Rust's `std::sync` never records it.
    Rust,
    /// A library with unknown layouts.
    Unknown,
}

impl Library {
    /// Whether a lock like this one records its holder.
    fn records_holder(self, wait: &Wait) -> bool {
        let lock = ["mutex", "rwlock"].contains(&wait.kind.as_str());
        match self {
            Library::Glibc => wait.readers.is_none(),
            Library::Musl => !lock || wait.kind == "mutex" && !wait.flavor.is_empty(),
            Library::Rust => !lock,
            // The kernel knows the holder.
            Library::Unknown => wait.flavor == ["priority-inheriting"],
        }
    }
}

impl Inspection {
    /// Inspects a process on this machine. Returns the result and the run, for messages.
    pub fn attach(pid: u32) -> Result<(Inspection, Run)> {
        Inspection::of(&["--attach", &pid.to_string()])
    }

    /// Inspects with these options.
    pub fn of(options: &[&str]) -> Result<(Inspection, Run)> {
        let run = inspect(options, "json")?;
        let inspection = serde_json::from_slice(&run.stdout).with_context(|| run.to_string())?;
        Ok((inspection, run))
    }

    /// Compares the program's own statements with the inspection.
    pub fn compare(&self, waiting: &Waiting, conditions: Conditions) -> Result<()> {
        let threads: BTreeMap<u64, &Thread> = self.threads.iter().map(|t| (t.tid, t)).collect();
        let all_wait = self.threads.iter().all(|thread| thread.wait.is_some());
        for (tid, told) in &waiting.waits {
            let thread = threads
                .get(tid)
                .with_context(|| format!("no thread {tid}"))?;
            ensure!(
                thread.state.as_deref() == Some(conditions.state),
                "{told:x?}: {thread:x?}"
            );
            // The C library's functions that start threads come before it.
            let main = *tid == u64::from(waiting.pid);
            let known = main || !conditions.named || thread.function.is_some();
            ensure!(known, "of unknown function: {thread:?}");
            let wait = thread.wait.as_ref().context("no wait")?;
            let recorded = conditions.library.records_holder(wait);
            let holders: Vec<u64> = told.holder.filter(|_| recorded).into_iter().collect();
            ensure!(
                wait.kind == told.kind && wait.holders == holders,
                "told {told:x?}, seen {thread:x?}"
            );
            ensure!(
                told.address == 0 || wait.address == told.address,
                "told {told:x?}, seen {thread:x?}"
            );
            let concerned = self.findings.iter().any(|f| f.threads.contains(tid));
            let at_once = conditions.stands || holders.is_empty() || concerned;
            // If all threads wait, all are inspected again. A thread that fell asleep later proves
            // nothing.
            let may_be = recorded && all_wait && wait.proved;
            // For this kind of mutex, it is inferred which thread the kernel refused.
            let refused = wait.flavor.iter().any(|word| word == "priority-inheriting");
            ensure!(
                wait.proved == (recorded && at_once) || may_be || refused && !wait.proved,
                "{thread:x?}"
            );
            let variable = conditions.named && told.address != 0 && wait.kind != "join";
            let in_program = !variable || wait.address > conditions.low || wait.object.is_some();
            ensure!(in_program, "no name: {thread:x?}");
            // musl does not store the mutex where it could be recognized.
            if let Some(mutex) = waiting
                .mutexes
                .get(tid)
                .filter(|_| conditions.library == Library::Glibc)
            {
                let seen = wait.mutex.as_ref().map(|mutex| mutex.address);
                ensure!(
                    seen == Some(*mutex),
                    "told mutex {mutex:#x}, seen {thread:x?}"
                );
            }
            ensure!(
                !wait.timed || ["mutex", "cond"].contains(&wait.kind.as_str()),
                "{thread:x?}"
            );
        }
        let findings = self.stated_findings(waiting);
        let told = &waiting.findings;
        ensure!(findings == *told, "told {told:?}, seen {findings:?}");
        Ok(())
    }

    /// The findings in the form that programs print.
    fn stated_findings(&self, waiting: &Waiting) -> Vec<StatedFinding> {
        let wrong = |finding: &Finding| {
            let mut tids = finding.threads.clone();
            tids.sort_unstable();
            let mut told = waiting.findings.iter();
            if told.any(|told| told.kind == finding.kind && told.tids.is_empty()) {
                tids.clear();
            }
            StatedFinding {
                kind: finding.kind.clone(),
                proved: finding.proved,
                tids,
            }
        };
        self.findings.iter().map(wrong).collect()
    }
}

/// Runs `unspool inspect` with these options.
pub fn inspect(options: &[&str], format: &str) -> Result<Run> {
    let mut command = report::unspool()?;
    command
        .arg("inspect")
        .args(options)
        .args(["--format", format]);
    process::run(&mut command, Duration::from_secs(300))?.success()
}
