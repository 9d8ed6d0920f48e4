//! What `programs/lock_waits.c` says about its waits for locks, compared with a report.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::waiting;

/// The program's source, in `programs`.
pub const SOURCE: &str = "lock_waits.c";

/// Compiles the program for this machine. Returns its folder, and the command that runs it, or that
/// runs a shell which starts it.
pub fn build(started: bool) -> Result<(TempDir, Vec<String>)> {
    let compiler = ["gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", SOURCE, &compiler)?;
    let program = program.to_str().context("a path in UTF-8")?;
    let command = match started {
        true => vec!["sh".to_owned(), "-c".to_owned(), format!("{program}; true")],
        false => vec![program.to_owned()],
    };
    Ok((folder, command))
}

/// Waits are shorter than the calls, which also take time on a processor and to get one.
const SHARES: std::ops::RangeInclusive<f64> = 0.7..=1.05;

/// Compares a report with the program's output. `started`: the recorded program started it.
pub fn compare(output: &str, json: &Value, started: bool) -> Result<()> {
    let mut expected: Vec<(&str, &str, u64)> = Vec::new();
    for line in output.lines() {
        if let [lock, function, ns] = line.split(' ').collect::<Vec<_>>()[..]
            && let Ok(ns) = ns.parse()
        {
            expected.push((lock, function, ns));
        }
    }
    ensure!(expected.len() == 6, "{output}");
    let seen = json["lock_waits"].as_array().context("lock_waits")?;
    for (lock, function, ns) in expected {
        let wanted = match lock {
            "-" => Value::Null,
            name => name.into(),
        };
        let mut same = seen
            .iter()
            .filter(|waits| waits["object"]["name"] == wanted && waits["functions"][0] == function);
        let waits = same.next().with_context(|| format!("{lock}: {seen:#?}"))?;
        ensure!(same.next().is_none(), "{lock} twice: {seen:#?}");
        let kind = if lock == "map" { "rwlock" } else { "mutex" };
        ensure!(waits["object"]["kind"] == kind, "{waits:#}");
        let file = waits["caller"]["file"].as_str().unwrap_or_default();
        ensure!(file.ends_with(SOURCE), "{waits:#}");
        let process = if started { 0.into() } else { Value::Null };
        ensure!(waits["process"] == process, "{waits:#}");
        let total_ns = waits["total_ns"].as_u64().context("total_ns")?;
        let share = total_ns as f64 / ns as f64;
        ensure!(SHARES.contains(&share), "{lock}: {total_ns} of {ns} ns");
        ensure!(of_holder(json, waits, started)? * 2 > total_ns, "{waits:#}");
    }
    // glibc keeps the number of this call in a register.
    let of_barrier = |thread: &Value| {
        let calls = thread["schedule"]["system_calls"].as_array();
        calls.into_iter().flatten().any(|call| {
            call["function"] == "pthread_barrier_wait" && call["object"]["name"] == "begin"
        })
    };
    let waited = threads(json, started)?
        .iter()
        .filter(|thread| of_barrier(thread));
    ensure!(waited.count() > 0, "{json:#}");
    let findings = json["findings"].as_array().context("findings")?;
    let texts = findings
        .iter()
        .filter_map(|finding| finding["text"].as_str());
    let named = texts.filter(|text| text.contains("waited") && text.contains("mutex door:"));
    ensure!(named.count() == 1, "{findings:#?}");
    Ok(())
}

fn threads(json: &Value, started: bool) -> Result<&Vec<Value>> {
    let threads = match started {
        true => &json["processes"][0]["threads"],
        false => &json["threads"],
    };
    threads.as_array().context("threads")
}

/// The part of the waits that was for the thread that holds the locks for long.
fn of_holder(json: &Value, waits: &Value, started: bool) -> Result<u64> {
    let holder = threads(json, started)?
        .iter()
        .find(|thread| thread["function"] == "hold");
    let tid = &holder.context("the thread `hold`")?["tid"];
    let holders = waits["holders"].as_array().context("holders")?;
    let own = holders.iter().find(|holder| &holder["tid"] == tid);
    Ok(own.and_then(|own| own["total_ns"].as_u64()).unwrap_or(0))
}
