//! Tests the traces for gdb and for readers of the Common Trace Format.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{LIMIT, PAGE, export, recorded};
use unspool_tests::{process, workspace};

/// A program counter in its file, by the file's path.
type Pc = (String, u64);

/// gdb opens the trace with the printed command. Its backtraces have the same program counters as
/// the report.
pub(super) fn tfile() -> Result<()> {
    let recorded = recorded(PAGE)?;
    let file = recorded.folder.path().join("hits.tf");
    let run = export(&recorded.capture, "tfile", &file, &[])?.success()?;
    let (_, command) = run
        .stderr
        .split_once("To open it: gdb")
        .context("no hint")?;
    let reader = workspace::file("consumers/tfile_frames.py");
    let command = format!("gdb -batch {} -x {}", command.trim(), reader.display());
    let mut shell = Command::new("sh");
    let read = process::run(shell.arg("-c").arg(&command), LIMIT)?
        .success()?
        .text();
    let frames = read.lines().find_map(|line| line.strip_prefix("FRAMES "));
    let frames: Value = serde_json::from_str(frames.with_context(|| read.clone())?)?;
    let modules = modules(command.as_str())?;
    let mut theirs: BTreeSet<Vec<Pc>> = BTreeSet::new();
    let mut tids = BTreeSet::new();
    for frame in frames.as_array().context("frames")? {
        tids.insert(frame["tid"].as_u64().context("tid")?);
        let pcs = frame["pcs"].as_array().context("pcs")?.iter();
        let pcs = pcs.map(|pc| placed(pc.as_u64().context("pc")?, &modules));
        theirs.insert(pcs.collect::<Result<_>>()?);
    }
    let physical = |frames: &Value| -> Result<Vec<Pc>> {
        let frames = frames.as_array().context("a stack")?.iter();
        let frames = frames.filter(|frame| frame["inlined"] == false);
        frames
            .map(|frame| {
                let module = frame["module"].as_str().context("a module")?;
                Ok((module.to_owned(), frame["svma"].as_u64().context("svma")?))
            })
            .collect()
    };
    let mut compared = 0;
    for path in recorded.json["paths"].as_array().context("paths")? {
        let ours = physical(&path["frames"])?;
        if !ours.is_empty() {
            ensure!(
                theirs.contains(&ours),
                "gdb has no {ours:x?} in {theirs:#x?}"
            );
            compared += 1;
        }
    }
    let threads = recorded.json["threads"].as_array().context("threads")?;
    for thread in threads
        .iter()
        .filter(|thread| thread["creation"].is_array())
    {
        let ours = physical(&thread["creation"])?;
        let same = |stack: &Vec<Pc>| stack.get(1..) == Some(&ours[..]);
        ensure!(
            ours.is_empty() || theirs.iter().any(same),
            "gdb has no {ours:x?}"
        );
        compared += usize::from(!ours.is_empty());
    }
    ensure!(
        compared > 10 && tids.len() > 2,
        "{compared} stacks of {tids:?}"
    );
    let known = |tid: &u64| threads.iter().any(|thread| thread["tid"] == *tid);
    ensure!(tids.iter().all(known), "{tids:?}");
    Ok(())
}

/// Path and bias of each module in the command.
fn modules(command: &str) -> Result<Vec<(String, u64)>> {
    let parts = command.split("add-symbol-file ").skip(1);
    let modules = parts.map(|part| {
        let part = part.split('\'').next().unwrap_or(part);
        let (path, bias) = part.split_once(" -o 0x").context("a bias")?;
        Ok((path.to_owned(), u64::from_str_radix(bias, 16)?))
    });
    modules.collect()
}

fn placed(pc: u64, modules: &[(String, u64)]) -> Result<Pc> {
    let below = modules.iter().filter(|(_, bias)| *bias <= pc);
    let nearest = below.max_by_key(|(_, bias)| *bias);
    let (path, bias) = nearest.with_context(|| format!("{pc:#x} is in no module"))?;
    Ok((path.clone(), pc - bias))
}

/// babeltrace2 reads the directory. Its switches give the same running times as our report, and its
/// waits and threads are equal, too.
pub(super) fn ctf() -> Result<()> {
    let recorded = recorded(PAGE)?;
    let folder = recorded.folder.path().join("trace");
    export(&recorded.capture, "ctf", &folder, &[])?.success()?;
    let again = export(&recorded.capture, "ctf", &folder, &[])?;
    ensure!(
        again.code()? != 0 && again.stderr.contains("is not empty; name a new directory"),
        "{again}"
    );
    let events = babeltrace(&folder)?;
    let running = running(&events)?;
    let mut waits: BTreeMap<(u64, String), u64> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &events {
        *counts.entry(&event.name).or_default() += 1;
        if event.name == "unspool_wait_end" {
            let kind = event.fields["waiting_for"].clone();
            let tid = event.number("tid")?;
            *waits.entry((tid, kind)).or_default() += event.number("duration_ns")?;
        }
    }
    let threads = recorded.json["threads"].as_array().context("threads")?;
    let (mut ran, mut waited) = (0, 0);
    for thread in threads {
        let tid = thread["tid"].as_u64().context("tid")?;
        let ours = thread["schedule"]["running_ns"]
            .as_u64()
            .context("running")?;
        let theirs = running.get(&tid).copied().unwrap_or(0);
        ensure!(ours == theirs, "{tid} ran for {ours} ns, read {theirs}");
        ran += ours;
        for kind in ["held", "others", "idle"] {
            let ours = thread["times"][format!("{kind}_ns")].as_u64();
            let theirs = waits.get(&(tid, kind.to_owned())).copied().unwrap_or(0);
            ensure!(
                ours == Some(theirs),
                "{tid}: {kind} {ours:?}, read {theirs}"
            );
            waited += theirs;
        }
    }
    ensure!(ran > 0 && waited > 0, "{ran} {waited}");
    let created = threads
        .iter()
        .filter(|thread| thread["creator_tid"].is_number());
    let count = |name| counts.get(name).copied().unwrap_or(0);
    for (ours, name) in [
        (threads.len(), "unspool_thread_starts"),
        (created.count(), "unspool_thread_creates"),
        (count("unspool_wait_begin"), "unspool_wait_end"),
        (count("unspool_hold_begin"), "unspool_hold_end"),
        (
            recorded.json["findings"]
                .as_array()
                .context("findings")?
                .len(),
            "unspool_finding",
        ),
    ] {
        ensure!(ours == count(name), "{name}: {ours}, read {counts:?}");
    }
    ensure!(
        count("sched_wakeup") > 0 && count("unspool_hold_end") > 0,
        "{counts:?}"
    );
    Ok(())
}

/// The running time of each thread id, by the switches.
pub(super) fn running(events: &[Event]) -> Result<BTreeMap<u64, u64>> {
    let mut since: BTreeMap<u64, u64> = BTreeMap::new();
    let mut running: BTreeMap<u64, u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event.name == "sched_switch") {
        let prev = event.number("prev_tid")?;
        if let Some(from) = since.remove(&prev) {
            *running.entry(prev).or_default() += event.ns - from;
        }
        since.insert(event.number("next_tid")?, event.ns);
    }
    Ok(running)
}

/// An event as babeltrace2 prints it.
#[derive(Debug)]
pub(super) struct Event {
    ns: u64,
    pub(super) name: String,
    pub(super) fields: BTreeMap<String, String>,
}

impl Event {
    fn number(&self, name: &str) -> Result<u64> {
        let number = self.fields.get(name).and_then(|text| text.parse().ok());
        number.with_context(|| format!("{name} of {self:?}"))
    }
}

/// Reads lines such as `[00397545432] unspool_thread_ends: { cpu_id = 0 }, { tid = 7 }`.
pub(super) fn babeltrace(folder: &Path) -> Result<Vec<Event>> {
    let mut reader = Command::new("babeltrace2");
    reader.args(["--clock-cycles", "--no-delta"]).arg(folder);
    let run = process::run(&mut reader, LIMIT)?.success()?;
    ensure!(run.stderr.is_empty(), "{}", run.stderr);
    let text = run.text();
    let events = text.lines().map(|line| {
        let wrong = || format!("no event: {line}");
        let (ns, rest) = line[1..].split_once("] ").with_context(wrong)?;
        let (name, rest) = rest.split_once(": ").with_context(wrong)?;
        let mut fields = BTreeMap::new();
        for part in rest.split(", ") {
            if let Some((name, value)) = part.split_once(" = ") {
                let name = name.trim_start_matches("{ ").to_owned();
                let value = value.trim_end_matches(" }").trim_matches('"');
                fields.insert(name, value.to_owned());
            }
        }
        Ok(Event {
            ns: ns.parse().with_context(wrong)?,
            name: name.to_owned(),
            fields,
        })
    });
    events.collect()
}
