//! Tests that a program and the one that it executes have objects and threads of their own, even at
//! equal addresses.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::{process, report, waiting};

use super::{C, MUSL};

pub(super) fn trials() -> Vec<Trial> {
    let builds = [("gcc", C), ("musl", MUSL)];
    let trials = builds.map(|(name, command)| {
        crate::trial(format!("findings::executed::{name}"), || apart(command))
    });
    trials.into()
}

fn apart(command: &[&str]) -> Result<()> {
    let (folder, file) = waiting::compile_in("findings", "executed.c", command)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--sync=all", "--budget", "none", "-o"]);
    record.arg(&capture).arg("--").arg(file);
    process::run(&mut record, Duration::from_secs(120))?.success()?;
    let json = report::json(&capture, &[])?;
    // Beside other tests, the start of the second program may take much processor time.
    let findings = json["findings"].as_array().context("findings")?.iter();
    let findings: Vec<_> = findings.filter(|it| it["kind"] != "bottleneck").collect();
    ensure!(findings.is_empty(), "{findings:#?}");
    let objects = json["objects"].as_array().context("objects")?.iter();
    let mut locks: Vec<(&str, u64)> = objects
        .filter(|object| object["kind"] == "mutex")
        .filter_map(|object| Some((object["name"].as_str()?, object["taken"].as_u64()?)))
        .filter(|(name, _)| ["left", "right"].contains(name))
        .collect();
    locks.sort_unstable();
    let expected = [("left", 1), ("left", 2), ("right", 1), ("right", 1)];
    ensure!(locks == expected, "{:#}", json["objects"]);
    Ok(())
}
