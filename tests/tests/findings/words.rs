//! Tests that an object has one address, the program's, whichever of its words threads wait at.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use unspool_tests::finding::{C, MUSL, MUSL_STATIC};
use unspool_tests::{process, report, waiting};

const LIMIT: Duration = Duration::from_secs(120);

const BUILDS: [(&str, &[&str]); 4] = [
    ("glibc", C),
    (
        "glibc-static",
        &["gcc", "-std=gnu11", "-g", "-O1", "-pthread", "-static"],
    ),
    ("musl", MUSL),
    ("musl-static", MUSL_STATIC),
];

pub(super) fn trials() -> Vec<Trial> {
    let each = BUILDS.into_iter().flat_map(|(build, command)| {
        ["--sync", "--sync=all"].map(move |mode| {
            let name = format!("findings::words::{build}::{}", &mode[2..]);
            crate::trial(name, move || one_address(command, mode))
        })
    });
    each.collect()
}

fn one_address(command: &[&str], mode: &str) -> Result<()> {
    let (folder, program) = waiting::compile_in("findings", "words.c", command)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--budget", "none", mode, "-o"]);
    record.arg(&capture).arg("--").arg(&program);
    let said = process::run(&mut record, LIMIT)?.success()?.text();
    let objects = objects(&capture)?;
    for line in said.lines() {
        let Some((kind, address)) = line.split_once(" 0x") else {
            continue;
        };
        let address = u64::from_str_radix(address, 16)?;
        let waited = |object: &&Value| object["waits"]["count"].as_u64() > Some(0);
        let of_kind = objects.iter().filter(|object| object["kind"] == kind);
        let of_kind: Vec<&Value> = of_kind.filter(waited).collect();
        // The C library also waits for its own locks.
        let near = |object: &&&Value| {
            let at = object["address"].as_u64().unwrap_or(0);
            at.abs_diff(address) < 64
        };
        let near: Vec<_> = of_kind.iter().filter(near).collect();
        let [object] = near[..] else {
            anyhow::bail!(
                "{kind} at {address:#x} is {} objects: {near:#?}",
                near.len()
            );
        };
        ensure!(
            object["address"] == address,
            "{kind} at {address:#x} is said to be at {:#x}",
            object["address"].as_u64().unwrap_or(0)
        );
        ensure!(
            object["name"] == format!("all.{kind}"),
            "{kind} is called {}",
            object["name"]
        );
        let waits = object["waits"]["count"].as_u64();
        ensure!(waits >= Some(3), "{waits:?} waits for {kind}: {object:#}");
    }
    let futexes = objects.iter().filter(|object| object["kind"] == "futex");
    let own = futexes.filter(|object| !object["symbol"].is_null());
    let own: Vec<&Value> = own.filter(|o| o["symbol"]["function"] == "all").collect();
    ensure!(own.is_empty(), "{own:#?}");
    Ok(())
}

fn objects(capture: &Path) -> Result<Vec<Value>> {
    let mut command = report::unspool()?;
    command
        .arg("report")
        .arg(capture)
        .args(["--format", "json"]);
    let run = process::run(&mut command, LIMIT)?.success()?;
    let report: Value = serde_json::from_slice(&run.stdout)?;
    report["objects"].as_array().cloned().context("objects")
}
