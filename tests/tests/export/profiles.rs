//! Tests profiles with the tools that are made for them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{LIMIT, PAGE, Recorded, export, recorded};
use unspool_tests::{process, workspace};

/// Sums of a profile's values by name, such as `wait/nanoseconds`.
type Sums = BTreeMap<String, u64>;

/// Go's pprof reads the profile. Its sums per thread are the report's.
pub(super) fn pprof() -> Result<()> {
    let recorded = recorded(PAGE)?;
    let file = recorded.folder.path().join("profile.pb.gz");
    export(&recorded.capture, "pprof", &file, &[])?.success()?;
    let by_thread = sums(&go_pprof(&["-raw"], &file)?)?;
    let (mut waited, mut ran, mut created) = (0, 0, 0);
    for thread in recorded.json["threads"].as_array().context("threads")? {
        let tid = thread["tid"].as_u64().context("tid")?;
        let theirs = |name: &str| by_thread.get(&tid).and_then(|sums| sums.get(name));
        let theirs = |name: &str| theirs(name).copied().unwrap_or(0);
        let times = ["held_ns", "others_ns", "idle_ns"].map(|name| &thread["times"][name]);
        let wait = times.iter().filter_map(|ns| ns.as_u64()).sum::<u64>();
        let cpu = thread["schedule"]["running_ns"].as_u64().unwrap_or(0);
        let creations = created_by(&recorded.json, tid)?;
        for (name, ours) in [
            ("wait/nanoseconds", wait),
            ("cpu/nanoseconds", cpu),
            ("creations/count", creations),
        ] {
            let theirs = theirs(name);
            ensure!(ours == theirs, "{tid}: {name} is {ours}, read {theirs}");
        }
        (waited, ran, created) = (waited + wait, ran + cpu, created + creations);
    }
    ensure!(
        waited > 0 && ran > 0 && created > 0,
        "{waited} {ran} {created}"
    );
    let objects = recorded.json["objects"].as_array().context("objects")?;
    let waits: u64 = (objects.iter())
        .filter_map(|object| object["waits"]["count"].as_u64())
        .sum();
    let read: u64 = by_thread.values().map(|sums| sums["waits/count"]).sum();
    ensure!(waits == read, "{waits} waits, read {read}");

    let top = go_pprof(&["-top", "-unit=ns"], &file)?;
    let total = format!("of {waited}ns total");
    ensure!(top.contains(&total), "no {total:?} in {top}");
    let traces = go_pprof(&["-traces", "-sample_index=creations"], &file)?;
    ensure!(
        traces.contains("main") && traces.contains("creates:"),
        "{traces}"
    );
    ensure!(go_pprof(&["-tags"], &file)?.contains("mutex door"));
    Ok(())
}

/// An independent reader finds the profile to be as the format demands. Its sums per thread are the
/// report's, and so are its findings.
pub(super) fn firefox() -> Result<()> {
    let recorded = recorded(PAGE)?;
    let read = read_firefox(&recorded)?;
    let threads = recorded.json["threads"].as_array().context("threads")?;
    let (mut waited, mut ran, mut created) = (0, 0, 0);
    for thread in threads {
        let tid = thread["tid"].as_u64().context("tid")?;
        let theirs = &read["threads"][tid.to_string()];
        for waiting_for in ["held", "others", "idle"] {
            let ours = thread["times"][format!("{waiting_for}_ns")].as_u64();
            let theirs = theirs["waits"][waiting_for].as_u64().unwrap_or(0);
            ensure!(
                ours == Some(theirs),
                "{tid}: {waiting_for} {ours:?}, read {theirs}"
            );
            waited += theirs;
        }
        // The format counts microseconds.
        let cpu_us = thread["schedule"]["running_ns"]
            .as_u64()
            .map(|ns| ns / 1000);
        ensure!(
            theirs["cpu_us"].as_u64() == cpu_us,
            "{tid}: {cpu_us:?}, read {theirs}"
        );
        ran += cpu_us.unwrap_or(0);
        let creations = theirs["events"]["Life: creates a thread"].as_u64();
        let creations = creations.unwrap_or(0);
        ensure!(
            creations == created_by(&recorded.json, tid)?,
            "{tid}: {theirs}"
        );
        created += creations;
    }
    ensure!(
        waited > 0 && ran > 0 && created > 0,
        "{waited} {ran} {created}"
    );
    ensure!(read.to_string().contains("\"mutex door\""), "{read}");
    let visible = read["visible"].as_array().context("visible")?;
    ensure!(visible.len() == threads.len(), "{visible:?}");

    let read = read_firefox(&*super::recorded("inversion.c")?)?;
    let all = read["threads"].as_object().context("threads")?;
    let found = |thread: &Value| thread["events"]["Finding: lock-order"] == 1;
    ensure!(all.values().any(found), "{read}");
    Ok(())
}

pub(super) fn read_firefox(recorded: &Recorded) -> Result<Value> {
    let file = recorded.folder.path().join("profile.json");
    export(&recorded.capture, "firefox", &file, &[])?.success()?;
    let mut reader = Command::new("python3");
    reader
        .arg(workspace::file("consumers/read_profile.py"))
        .arg(&file);
    let run = process::run(&mut reader, LIMIT)?.success()?;
    Ok(serde_json::from_str(&run.text())?)
}

/// Number of threads that a thread created.
fn created_by(json: &Value, tid: u64) -> Result<u64> {
    let threads = json["threads"].as_array().context("threads")?;
    let created = threads.iter().filter(|thread| thread["creator_tid"] == tid);
    Ok(created.count() as u64)
}

fn go_pprof(options: &[&str], file: &Path) -> Result<String> {
    let mut pprof = Command::new("go");
    pprof.args(["tool", "pprof"]).args(options).arg(file);
    Ok(process::run(&mut pprof, LIMIT)?.success()?.text())
}

/// Adds up the samples that `pprof -raw` prints, by the label `tid`: a line with the values and the
/// locations, then lines with labels.
fn sums(raw: &str) -> Result<BTreeMap<u64, Sums>> {
    let mut lines = raw.lines().skip_while(|line| *line != "Samples:").skip(1);
    let names: Vec<&str> = lines
        .next()
        .context("no types")?
        .split_whitespace()
        .map(|name| name.trim_end_matches("[dflt]"))
        .collect();
    let mut sums: BTreeMap<u64, Sums> = BTreeMap::new();
    let mut values: Vec<u64> = Vec::new();
    for line in lines.take_while(|line| *line != "Locations") {
        if let Some((numbers, _)) = line.split_once(": ").filter(|(text, _)| {
            text.split_whitespace()
                .all(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
        }) {
            values = numbers
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()?;
        } else if let Some(tid) =
            (line.split_whitespace()).find_map(|label| label.strip_prefix("tid:["))
        {
            let tid = tid.trim_end_matches(']').parse()?;
            let mine = sums.entry(tid).or_default();
            for (name, value) in names.iter().zip(&values) {
                *mine.entry((*name).to_owned()).or_default() += value;
            }
        }
    }
    Ok(sums)
}
