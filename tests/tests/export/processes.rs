//! Tests that exported files have the processes that the program started, with the JSON report's
//! times.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Recorded, TraceReader, by_json, export, profiles, traces};
use unspool_tests::memo::Memo;

/// Processes that start each other; one of them has two threads.
fn recorded() -> Result<Arc<Recorded>> {
    static RECORDED: Memo<(), Recorded> = Memo::new();
    RECORDED.get((), || {
        let recorded = super::record_with("family.c", &["-q"])?;
        let processes = recorded.json["processes"].as_array().context("processes")?;
        ensure!(processes.len() == 3, "{processes:#?}");
        Ok(recorded)
    })
}

/// Calls `check` with each process of the report, its time in a state, and the sum of `of` over the
/// ids of its threads.
fn each_process(
    recorded: &Recorded,
    state: &str,
    of: impl Fn(u64) -> Result<u64>,
    check: impl Fn(&Value, u64, u64) -> Result<()>,
) -> Result<()> {
    for process in recorded.json["processes"].as_array().context("processes")? {
        let ours = process["times"][state].as_u64().context("times")?;
        let mut theirs = 0;
        for thread in process["threads"].as_array().context("threads")? {
            theirs += of(thread["tid"].as_u64().context("tid")?)?;
        }
        check(process, ours, theirs)?;
    }
    Ok(())
}

/// The trace has each process with its name and threads, their times in these states, and who woke
/// whom.
fn compare(recorded: &Recorded, read: &Value, states: &[(&str, &str)]) -> Result<()> {
    for (name, state) in states {
        let of = |tid: u64| {
            let thread = &read["threads"][tid.to_string()];
            Ok(thread["states"][state].as_u64().unwrap_or(0))
        };
        each_process(recorded, name, of, |process, ours, theirs| {
            ensure!(ours == theirs, "{name}: {ours}, read {theirs}: {process:#}");
            Ok(())
        })?;
    }
    let processes = recorded.json["processes"].as_array().context("processes")?;
    let named = read["processes"].as_object().context("processes")?;
    ensure!(named.len() == processes.len() + 1, "{named:#?}");
    let mut pids = BTreeMap::new();
    for process in processes {
        let pid = process["pid"].as_u64().context("pid")?;
        ensure!(named[&pid.to_string()] == process["program"], "{named:#?}");
        for thread in process["threads"].as_array().context("threads")? {
            let tid = thread["tid"].as_u64().context("tid")?;
            let seen = &read["threads"][tid.to_string()];
            // None of them has a name of its own.
            let name = match &thread["function"] {
                Value::Null => &process["program"],
                function => function,
            };
            ensure!(seen["pid"] == pid && seen["name"] == *name, "{seen}");
            pids.insert(tid, pid);
        }
    }
    // Each process ends, which wakes the thread that waits for it.
    let main = recorded.json["threads"][0]["tid"].as_u64().context("tid")?;
    let wakes = read["wakes"].as_array().context("wakes")?;
    let wakes_main = |wake: &Value| {
        let waker = wake[0].as_u64().and_then(|tid| pids.get(&tid));
        waker.is_some() && wake[1] == main
    };
    let has_wakers = recorded.json["recording"]["schedule"]["wakers"] == true;
    ensure!(!has_wakers || wakes.iter().any(wakes_main), "{wakes:?}");
    Ok(())
}

/// Exports the recording, and returns what the reader of traces says.
fn exported(recorded: &Recorded, format: &str, reader: TraceReader<'_>) -> Result<Value> {
    let file = recorded.folder.path().join(format);
    export(&recorded.capture, format, &file, &[])?.success()?;
    reader(&file)
}

pub(super) fn perfetto(reader: TraceReader<'_>) -> Result<()> {
    let recorded = recorded()?;
    let states = [
        ("running_ns", "running"),
        ("runnable_ns", "runnable"),
        ("blocked_ns", "blocked"),
    ];
    let read = exported(&recorded, "perfetto", reader)?;
    let starts = read["flows"].as_array().context("flows")?;
    ensure!(starts.len() == 3, "a flow to each process: {starts:?}");
    compare(&recorded, &read, &states)
}

pub(super) fn chrome() -> Result<()> {
    let recorded = recorded()?;
    let states = [("runnable_ns", "runnable"), ("blocked_ns", "blocked")];
    let read = exported(&recorded, "chrome", &mut by_json)?;
    compare(&recorded, &read, &states)
}

/// The format counts microseconds, of each thread.
pub(super) fn firefox() -> Result<()> {
    let recorded = recorded()?;
    let read = profiles::read_firefox(&recorded)?;
    let of = |tid: u64| {
        let thread = &read["threads"][tid.to_string()];
        thread["cpu_us"]
            .as_u64()
            .with_context(|| format!("{tid}: {read}"))
    };
    each_process(&recorded, "running_ns", of, |process, ours, theirs| {
        let threads = process["threads"].as_array().map_or(0, Vec::len) as u64;
        ensure!(
            (theirs..=theirs + threads).contains(&(ours / 1000)),
            "{ours} ns, read {theirs} us: {process:#}"
        );
        Ok(())
    })
}

pub(super) fn ctf() -> Result<()> {
    let recorded = recorded()?;
    let folder = recorded.folder.path().join("ctf");
    export(&recorded.capture, "ctf", &folder, &[])?.success()?;
    let events = traces::babeltrace(&folder)?;
    let running = traces::running(&events)?;
    let of = |tid: u64| Ok(running.get(&tid).copied().unwrap_or(0));
    each_process(&recorded, "running_ns", of, |process, ours, theirs| {
        ensure!(ours == theirs, "{ours}, read {theirs}: {process:#}");
        let pid = process["pid"].to_string();
        let starts = |event: &&traces::Event| {
            event.name == "unspool_thread_starts" && event.fields["pid"] == pid
        };
        let threads = process["threads"].as_array().map_or(0, Vec::len);
        ensure!(
            events.iter().filter(starts).count() == threads,
            "{process:#}"
        );
        Ok(())
    })
}
