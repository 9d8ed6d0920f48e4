//! Measures a million events from the running program to the report.
//!
//! 300 threads take 1,000 mutexes. Each lock and unlock is recorded without a budget, and the
//! recording is reported. `cargo bench -p unspool-tests --bench live` prints the table in
//! docs/internals/performance.md.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use unspool_tests::{crowd, process, waiting};

const THREADS: u64 = 300;
/// Number of pairs for each thread. The lock, its end and the unlock are events.
const PAIRS: u64 = 1_111;

fn main() -> Result<()> {
    let unspool = crowd::release("unspool")?;
    let gcc = ["gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in("findings", "hundreds.c", &gcc)?;
    let capture = folder.path().join("capture");
    let words = [THREADS, PAIRS].map(|number| number.to_string());
    let alone = timed(Command::new(&program).args(&words))?.0;
    let mut record = Command::new(&unspool);
    record.args(["record", "-q", "--sync=all", "--lossless", "-o"]);
    record.arg(&capture).arg("--").arg(&program).args(&words);
    let (recorded, said) = timed(&mut record)?;
    let mut report = Command::new(&unspool);
    report.arg("report").arg(&capture);
    report.args(["--view", "objects"]);
    let reported = timed(&mut report)?.0;
    let again = timed(&mut report)?.0;
    let mut json = Command::new(&unspool);
    json.arg("report").arg(&capture);
    let text = timed(json.args(["--format", "json"]))?.1;
    let report: Value = serde_json::from_str(&text)?;
    let objects = report["objects"].as_array().context("objects")?;
    let taken = |object: &Value| object["taken"].as_u64().unwrap_or(0);
    let of_program = |object: &&Value| {
        let name = object["name"].as_str().unwrap_or_default();
        name.starts_with("locks")
    };
    let seen: u64 = objects.iter().filter(of_program).map(taken).sum();
    let lost = report["recording"]["dropped_events"].as_u64();
    ensure!(
        said.contains(&format!("taken {} by", THREADS * PAIRS)),
        "{said}"
    );
    println!(
        "{THREADS} threads, 1,000 mutexes, {} pairs",
        THREADS * PAIRS
    );
    println!("pairs seen           {seen:10}");
    println!("events lost          {:10}", lost.context("a count")?);
    println!(
        "file                 {:10.1} MB",
        fs::metadata(&capture)?.len() as f64 / 1e6
    );
    println!("program alone        {:10.2} s", alone.as_secs_f64());
    println!("recorded             {:10.2} s", recorded.as_secs_f64());
    println!("report --view objects {:9.2} s", reported.as_secs_f64());
    println!("the same again       {:10.2} s", again.as_secs_f64());
    Ok(())
}

/// The time and the output of a command.
fn timed(command: &mut Command) -> Result<(Duration, String)> {
    let start = Instant::now();
    let run = process::run(command, Duration::from_secs(900))?.success()?;
    Ok((start.elapsed(), run.text()))
}
