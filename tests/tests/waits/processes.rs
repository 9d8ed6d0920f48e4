//! Tests waits for objects that other processes hold.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::inspection::{self, Inspection};
use unspool_tests::process;
use unspool_tests::waiting::{self, HERE, Waiting};

use super::BUILDS;

const LIMIT: Duration = Duration::from_secs(60);

/// Number of inspections of a program that only seems to be stuck.
const INSPECTIONS: usize = 40;

type Check = fn() -> Result<()>;

pub(super) fn trials() -> Vec<Trial> {
    let cases: &[(&str, Check)] = &[
        ("holder", holder),
        ("deadlock", deadlock),
        ("no-deadlock", no_deadlock),
        ("pipes", || pipes(&[])),
        // A stop ends such a write early.
        ("large-write", || pipes(&["-DLARGE"])),
    ];
    let trial = |(name, check): &(&str, Check)| {
        let check = *check;
        crate::trial(format!("waits::processes::{name}"), check)
    };
    cases.iter().map(trial).collect()
}

fn start(source: &str, options: &[&str]) -> Result<Waiting> {
    let (folder, file) = waiting::compile(source, &[BUILDS[0].1, options].concat())?;
    Waiting::start(&mut Command::new(file), folder)
}

/// The report shows what the holder in another process does.
fn holder() -> Result<()> {
    let waiting = start("shared.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let waits: Vec<_> = (seen.threads.iter())
        .filter_map(|thread| thread.wait.as_ref())
        .collect();
    let [wait] = waits[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(wait.shared, "{run}");
    let [process] = &seen.processes[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(wait.holders == [u64::from(process.pid)], "{run}");
    let threads = process.threads.iter().map(|thread| thread.tid);
    ensure!(threads.eq([u64::from(process.pid)]), "{run}");
    ensure!(
        process.program == "shared" && seen.findings.is_empty(),
        "{run}"
    );
    let run = inspection::inspect(&["--attach", &waiting.pid.to_string()], "text")?;
    let text = run.text().replace("\n  ", " ");
    let pid = process.pid;
    let expected = format!(
        "held by the main thread {pid} of process {pid} (shared), which is in the system call pause"
    );
    ensure!(text.contains(&expected), "{run}");
    ensure!(
        text.contains(&format!("process shared  pid {pid}")),
        "{run}"
    );
    Ok(())
}

/// Either process shows the deadlock of both, with the place of each mutex in their memory.
fn deadlock() -> Result<()> {
    let waiting = start("across.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let [expected] = &waiting.findings[..] else {
        anyhow::bail!("it states one finding");
    };
    let child = process::descendants(waiting.pid);
    for pid in [&[waiting.pid][..], &child].concat() {
        let (seen, run) = Inspection::attach(pid)?;
        let [found] = &seen.findings[..] else {
            anyhow::bail!("{run}");
        };
        let mut threads = found.threads.clone();
        threads.sort_unstable();
        ensure!(
            found.kind == "deadlock" && found.proved && threads == expected.tids,
            "{run}"
        );
        for place in ["/memfd:locks+0x0", "/memfd:locks+0x28"] {
            ensure!(found.text.contains(place), "{run}");
        }
        let others: Vec<u32> = seen.processes.iter().map(|process| process.pid).collect();
        ensure!(others.len() == 1 && others[0] != pid, "{run}");
    }
    Ok(())
}

/// Locks that are taken in both orders, but never at the same time, are no deadlock.
fn no_deadlock() -> Result<()> {
    let waiting = start("across.c", &["-DGATE"])?;
    let mut together = 0;
    for _ in 0..INSPECTIONS {
        let (seen, run) = Inspection::attach(waiting.pid)?;
        ensure!(seen.findings.is_empty(), "{run}");
        together += usize::from(!seen.processes.is_empty());
    }
    ensure!(together > INSPECTIONS / 4, "{together}");
    Ok(())
}

/// The report names the process at the other end of a pipe, and the child that is waited for.
fn pipes(options: &[&str]) -> Result<()> {
    let waiting = start("pipes.c", options)?;
    let parent = waiting.pid;
    let [child] = process::descendants(parent)[..] else {
        anyhow::bail!("one child");
    };
    process::wait_until("both processes wait", LIMIT, || {
        let calls = |pid| process::calls(pid).into_values();
        let mut calls = calls(parent).chain(calls(child));
        calls.all(|call| {
            ["61 ", "0 ", "1 "]
                .iter()
                .any(|number| call.starts_with(number))
        })
    })?;
    let pipe = |descriptor: i32| -> Result<String> {
        let link = fs::read_link(format!("/proc/{parent}/fd/{descriptor}"))?;
        Ok(link.to_string_lossy().into_owned())
    };
    let (full, empty) = (pipe(3)?, pipe(5)?);
    for (pid, states) in [
        (
            parent,
            vec![
                format!("in the system call wait4 for process {child} (pipes)"),
                format!(
                    "in the system call read of {empty}, which process {child} (pipes) can write"
                ),
            ],
        ),
        (
            child,
            vec![format!(
                "in the system call write of {full}, which process {parent} (pipes) can read"
            )],
        ),
    ] {
        let run = inspection::inspect(&["--attach", &pid.to_string()], "text")?;
        let text = run.text().replace("\n  ", " ");
        for state in states {
            ensure!(text.contains(&state), "{state}: {run}");
        }
    }
    Ok(())
}
