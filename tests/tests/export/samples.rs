//! Tests that a Perfetto trace has the CPU samples of a recording.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{TraceReader, export, record_with};

/// Number of samples by stack, the outermost function first.
type Stacks = BTreeMap<String, u64>;

/// Each thread has the report's stacks with the report's numbers of samples, at times at which it
/// ran.
pub(super) fn perfetto(reader: TraceReader<'_>) -> Result<()> {
    let recorded = record_with("burn.c", &["-q", "--cpu=997"])?;
    let file = recorded.folder.path().join("samples.pftrace");
    export(&recorded.capture, "perfetto", &file, &[])?.success()?;
    let read = reader(&file)?;
    let profile = &recorded.json["profile"];
    let stacks = profile["stacks"].as_array().context("stacks")?;
    let mut ours: BTreeMap<u64, Stacks> = BTreeMap::new();
    let mut unnamed = 0;
    for sample in profile["samples"].as_array().context("samples")? {
        let tid = sample["tid"].as_u64().context("tid")?;
        let stack = sample["stack"].as_u64().context("stack")? as usize;
        let Some(stack) = name(&stacks[stack])? else {
            unnamed += 1;
            continue;
        };
        *ours.entry(tid).or_default().entry(stack).or_default() += 1;
    }
    ensure!(ours.len() == 2, "threads with samples: {:?}", ours.keys());
    let (mut total, mut while_running) = (0, 0);
    for (tid, ours) in &ours {
        let thread = &read["threads"][tid.to_string()];
        let mut theirs: Stacks = serde_json::from_value(thread["samples"].clone())?;
        theirs.retain(|stack, _| !stack.contains("+0x") && !stack.contains("[unspool]"));
        ensure!(*ours == theirs, "{tid}: {ours:#?}, read {theirs:#?}");
        let known = |stack: &String| stack.starts_with("_start;") || stack.contains("clone");
        let burnt: u64 = (theirs.iter())
            .filter(|(stack, _)| known(stack) && stack.ends_with(";burn"))
            .map(|(_, count)| count)
            .sum();
        let all: u64 = theirs.values().sum();
        ensure!(burnt * 10 > all * 9, "{burnt} of {all}: {theirs:#?}");
        total += all;
        while_running += thread["while_running"].as_u64().context("a number")?;
    }
    ensure!(unnamed * 20 < total, "{unnamed} of {total}");
    // The kernel may take a sample while it switches.
    ensure!(
        while_running * 100 >= total * 99,
        "{while_running} of {total} samples lie where their thread ran"
    );
    Ok(())
}

/// The functions of a stack. None if one has no name, as where the stub runs its own code in the
/// program, or makes the program run a system call for it.
fn name(stack: &Value) -> Result<Option<String>> {
    let frames = stack["frames"].as_array().context("frames")?.iter().rev();
    let names: Option<Vec<&str>> = frames.map(|frame| frame["function"].as_str()).collect();
    Ok(names.map(|names| names.join(";")))
}
