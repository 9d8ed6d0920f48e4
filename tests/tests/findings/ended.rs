//! A wait at an object of each kind, as it is recorded: its object, how long it took, and who ended it; compared with what the
//! program says of the same waits, and with how long the kernel says that the thread waited.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use unspool_tests::{process, report, waiting};

use super::{C, CLANG, CXX, MUSL, MUSL_STATIC, RUST};

/// How it is called, the program, how it is built, the kinds of which the C library does not tell enough.
type Build = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const BUILDS: &[Build] = &[
    ("gcc", "ended.c", C, &[]),
    ("clang", "ended.c", CLANG, &[]),
    // Stripped, it does not name the function in which it waits for another's initialization.
    ("musl", "ended.c", MUSL, &["once"]),
    ("musl-static", "ended.c", MUSL_STATIC, &[]),
    ("cxx", "ended.cpp", CXX, &[]),
    ("rust", "ended.rs", RUST, &[]),
];

pub(super) fn trials() -> Vec<Trial> {
    let modes = ["contended", "all"];
    let both = BUILDS
        .iter()
        .flat_map(|build| modes.map(|mode| (build, mode)));
    both.map(|(build, mode)| {
        let name = format!("findings::ended::{}::{mode}", build.0);
        crate::trial(name, move || as_told(build, mode))
    })
    .collect()
}

/// Bytes of an object in which its futex words are.
const OBJECT: u64 = 64;

fn as_told((_, source, command, unknown): &Build, mode: &str) -> Result<()> {
    let (folder, file) = waiting::compile_in("findings", source, command)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    let sync = format!("--sync={mode}");
    record.args(["record", "-q", &sync, "--budget", "none", "-o"]);
    record.arg(&capture).arg("--").arg(file);
    let run = process::run(&mut record, Duration::from_secs(120))?.success()?;
    let report = read(&capture)?;
    let mut kinds = Vec::new();
    for line in run.text().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["ended", kind, numbers @ ..] = &words[..] else {
            continue;
        };
        let numbers: Vec<u64> = numbers
            .iter()
            .map(|n| n.parse())
            .collect::<Result<_, _>>()?;
        let &[address, waiter, ender, least, most] = &numbers[..] else {
            anyhow::bail!("{line}");
        };
        kinds.push((*kind).to_owned());
        if unknown.contains(kind) {
            continue;
        }
        let waited = waits(&report, kind, address, waiter, ender);
        // On a busy machine the recorder's clock may be off by some of it, when hits come together; what is lost or mixed up is off by all.
        let fits =
            waited.with_context(|| format!("not recorded: {line}\n{:#}", report["objects"]))?;
        let slack = most / 4;
        ensure!(
            (least.saturating_sub(slack)..=most + slack).contains(&fits),
            "{line}: recorded {fits} ns"
        );
    }
    ensure!(kinds.len() >= 5, "{run}");
    Ok(())
}

fn read(capture: &std::path::Path) -> Result<Value> {
    let mut command: Command = report::unspool()?;
    command.arg("report").arg(capture);
    let run = process::run(command.args(["--format", "json"]), Duration::from_secs(120))?;
    Ok(serde_json::from_slice(&run.success()?.stdout)?)
}

/// For how long one thread waited for another at an object.
fn waits(report: &Value, kind: &str, address: u64, waiter: u64, ender: u64) -> Option<u64> {
    let tid = |index: &Value| report["threads"][index.as_u64()? as usize]["tid"].as_u64();
    let objects = report["objects"].as_array()?.iter().filter(|object| {
        let at = object["address"].as_u64().unwrap_or(0);
        object["kind"] == kind && (address == 0 || (address..address + OBJECT).contains(&at))
    });
    let blames = objects.flat_map(|object| object["blames"].as_array().into_iter().flatten());
    let mut between = blames.filter(|blame| {
        tid(&blame["longest_waiter"]) == Some(waiter)
            && tid(&blame["longest_holder"]) == Some(ender)
    });
    between.next()?["total_ns"].as_u64()
}
