//! Tests the hangs of several processes that recordings find when they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use unspool_tests::process::{self, Background, Run};
use unspool_tests::report;
use unspool_tests::waiting::{self, Waiting};

use super::BUILDS;

const LIMIT: Duration = Duration::from_secs(60);

/// The hang that a program is known to have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hang {
    Proved,
    Inferred,
    None,
}

use Hang::{Inferred, None as Lively, Proved};

type Check = fn() -> Result<()>;
type Case = (&'static str, &'static str, &'static [&'static str], Hang);

/// Programs that a shell starts, and that outlive it.
const STARTED: &[Case] = &[
    ("process", "abba.c", &[], Proved),
    ("processes", "across.c", &[], Proved),
    ("turns", "across.c", &["-DGATE"], Lively),
    ("pipes", "pipes.c", &[], Inferred),
    // A stop ends such a write early.
    ("large-write", "pipes.c", &["-DLARGE"], Inferred),
    ("pipes-of-others", "pipes.c", &["-DOTHER"], Lively),
    ("pipes-of-a-timer", "pipes.c", &["-DTICKS"], Lively),
    ("pipes-of-the-living", "pipes.c", &["-DALIVE"], Lively),
    ("file-locks", "file_locks.c", &[], Inferred),
];

pub(super) fn trials() -> Vec<Trial> {
    let started = STARTED.iter().map(|(name, source, options, hang)| {
        let name = format!("waits::started::{name}");
        crate::trial(name, || started(source, options, *hang))
    });
    let recorded: &[(&str, Check)] = &[
        ("own-child", || own_child("pipes.c")),
        // A stop for the inspection at the end would end the write.
        ("own-filter", || own_child("filter.c")),
        ("idle-workers", idle_workers),
        ("beside-workers", beside_workers),
        ("own-ends", own_ends),
        ("earlier-child", || earlier("pipes.c", &[], false, Inferred)),
        ("earlier-locks", || earlier("across.c", &[], false, Proved)),
        ("earlier-file-locks", || {
            earlier("file_locks.c", &[], false, Inferred)
        }),
        ("earlier-turns", || {
            earlier("across.c", &["-DGATE"], false, Lively)
        }),
        ("earlier-holder", || {
            earlier("sleeping_holder.c", &[], false, Lively)
        }),
        ("earlier-own-pipe", || {
            earlier("pipes.c", &["-DOWN"], false, Inferred)
        }),
        ("earlier-handler", || {
            earlier("pipes.c", &["-DOWN", "-DHANDLER"], false, Lively)
        }),
        ("together", || earlier("pipes.c", &[], true, Inferred)),
        ("together-file-locks", || {
            earlier("file_locks.c", &[], true, Inferred)
        }),
        ("together-living", || {
            earlier("pipes.c", &["-DALIVE"], true, Lively)
        }),
    ];
    let recorded = recorded.iter().map(|(name, check)| {
        let name = format!("waits::recorded-processes::{name}");
        crate::trial(name, *check)
    });
    started.chain(recorded).collect()
}

/// A program, with two files that it may lock.
fn build(source: &str, options: &[&str]) -> Result<(TempDir, Command)> {
    let (folder, file) = waiting::compile(source, &[BUILDS[0].1, options].concat())?;
    let mut command = Command::new(file);
    for name in ["one", "two"] {
        let path = folder.path().join(name);
        fs::write(&path, "")?;
        command.arg(path);
    }
    Ok((folder, command))
}

fn record(capture: &Path, options: &[&str]) -> Result<Command> {
    let mut record = report::unspool()?;
    record
        .args(["record", "--duration", "2", "-o"])
        .arg(capture);
    record.args(options);
    Ok(record)
}

/// A shell starts the program, which outlives it: it does not get the SIGINT that ends the
/// recording.
fn started(source: &str, options: &[&str], hang: Hang) -> Result<()> {
    let (folder, program) = build(source, options)?;
    let capture = folder.path().join("capture");
    let script = "\"$0\" \"$@\" > /dev/null 2>&1 & wait";
    let mut record = record(&capture, &["--", "sh", "-c", script])?;
    record.arg(program.get_program()).args(program.get_args());
    let run = process::run(&mut record, LIMIT)?;
    let seen = report::json(&capture, &[])?;
    let processes = seen["processes"].as_array().context("processes")?;
    let pids: Vec<u64> = processes
        .iter()
        .filter_map(|it| it["pid"].as_u64())
        .collect();
    for pid in &pids {
        // Some end with their creators.
        let _ = kill(Pid::from_raw(i32::try_from(*pid)?), Signal::SIGKILL);
    }
    finds(&capture, &seen, &pids, hang).with_context(|| run.to_string())
}

/// Records a program from its start. Returns the folder with the capture, the capture, and the run.
fn recorded(source: &str, options: &[&str]) -> Result<(TempDir, PathBuf, Run)> {
    let (folder, program) = build(source, options)?;
    let capture = folder.path().join("capture");
    let mut record = record(&capture, &["--"])?;
    let run = process::run(record.arg(program.get_program()), LIMIT)?;
    Ok((folder, capture, run))
}

/// The program waits for a process that it has started.
fn own_child(source: &str) -> Result<()> {
    let (_folder, capture, run) = recorded(source, &[])?;
    let seen = report::json(&capture, &[])?;
    let pids: Vec<u64> = seen["processes"][0]["pid"].as_u64().into_iter().collect();
    ensure!(!run.stderr.contains("written"), "{run}");
    finds(&capture, &seen, &pids, Inferred).with_context(|| run.to_string())
}

/// Workers whose parent is busy need no inspection: a recording has time for fewer.
fn idle_workers() -> Result<()> {
    let (_folder, capture, run) = recorded("workers.c", &[])?;
    ensure!(run.stderr.contains("started 70 processes"), "{run}");
    ensure!(!run.stderr.contains("not inspected"), "{run}");
    finds(&capture, &report::json(&capture, &[])?, &[], Lively)
}

/// The child that hangs with its parent is found among more workers than can be inspected.
fn beside_workers() -> Result<()> {
    let (_folder, capture, run) = recorded("workers.c", &["-DHANG"])?;
    let seen = report::json(&capture, &[])?;
    let processes = seen["processes"].as_array().context("processes")?;
    ensure!(processes.len() == 71, "{run}");
    let child = processes
        .iter()
        .filter_map(|it| Some((it["started_ns"].as_u64()?, it["pid"].as_u64()?)));
    let child = child.max().context("a child")?.1;
    finds(&capture, &seen, &[child], Inferred).with_context(|| run.to_string())
}

/// The recorder and its stub inherit ends of the pipes at which two programs wait for each other.
fn own_ends() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let ((from_outside, outside_writes), (outside_reads, to_outside)) =
        (std::io::pipe()?, std::io::pipe()?);
    let outside = {
        // This process must not keep the ends.
        let mut cat = Command::new("cat");
        Background(process::start(
            cat.stdin(outside_reads).stdout(outside_writes),
        )?)
    };
    let mut record = record(&capture, &["--", "cat"])?;
    record
        .stdin(from_outside)
        .stdout(to_outside)
        .stderr(Stdio::piped());
    let recorder = process::start(&mut record)?;
    drop(record);
    let run = recorder.wait_with_output()?;
    let seen = report::json(&capture, &[])?;
    finds(&capture, &seen, &[outside.0.id().into()], Inferred)
        .with_context(|| String::from_utf8_lossy(&run.stderr).into_owned())
}

/// The processes exist before the recording, of the first of them or of all.
fn earlier(source: &str, options: &[&str], all: bool, hang: Hang) -> Result<()> {
    let (folder, mut program) = build(source, options)?;
    let capture = folder.path().join("capture");
    let waiting = Waiting::start(&mut program, folder)?;
    let children = process::descendants(waiting.pid);
    let pids = [&[waiting.pid][..], &children].concat();
    let named: Vec<String> = pids.iter().map(u32::to_string).collect();
    let named = if all {
        named.join(",")
    } else {
        named[0].clone()
    };
    let run = process::run(&mut record(&capture, &["--attach", &named])?, LIMIT)?.success()?;
    let seen = report::json(&capture, &[])?;
    let children: Vec<u64> = children.into_iter().map(u64::from).collect();
    finds(&capture, &seen, &children, hang).with_context(|| run.to_string())?;
    let shown = seen["processes"].as_array().context("processes")?;
    // A process that was only inspected is shown if it hangs.
    ensure!(all || hang != Lively || shown.is_empty(), "{shown:#?}");
    let left = pids.iter().filter(|pid| process::is_untraced(**pid));
    ensure!(
        left.count() == pids.len(),
        "a process has ended, or is traced"
    );
    Ok(())
}

/// The only hang in a report is that of the program, with these processes if there are any.
fn finds(capture: &Path, seen: &Value, pids: &[u64], hang: Hang) -> Result<()> {
    let findings = seen["findings"].as_array().context("findings")?;
    if hang == Lively {
        let is_load = |finding: &Value| finding["kind"] == "contention";
        ensure!(findings.iter().all(is_load), "{findings:#?}");
        return Ok(());
    }
    let kind = match pids {
        [] => "self-deadlock",
        _ => "deadlock",
    };
    let kinds = findings.iter().map(|it| (&it["kind"], &it["proved"]));
    let expected = (&kind.into(), &(hang == Proved).into());
    ensure!(kinds.eq([expected]), "{findings:#?}");
    let text = findings[0].to_string();
    for pid in pids {
        ensure!(text.contains(&format!("process {pid}")), "{pid}: {text}");
    }
    let mut report = report::unspool()?;
    report.args(["report", "--fail-on", kind]).arg(capture);
    let run = process::run(&mut report, LIMIT)?;
    ensure!(run.code()? == 3, "{run}");
    Ok(())
}
