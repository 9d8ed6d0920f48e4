//! Programs that hang, recorded until they do: what `programs/waits` says is wrong is found in the recording, in the same threads,
//! proved where every operation was recorded; and nothing else of that kind.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use unspool_tests::process::{self, Background};
use unspool_tests::report;
use unspool_tests::waiting::{self, HERE, Waiting};

use super::C;

/// A program, and whether what is wrong is proved when all is recorded, and when only waits are; none if it is not found then. A wake-up
/// that cannot come is never proved by a recording: a signal may have been on its way.
const CASES: &[(&str, Option<bool>, Option<bool>)] = &[
    ("abba.c", Some(true), Some(false)),
    ("again.c", Some(true), Some(false)),
    ("exited.c", Some(true), Some(false)),
    ("joins.c", Some(true), Some(true)),
    ("lost.c", Some(false), Some(false)),
    ("ring.c", Some(true), Some(false)),
    ("timed.c", Some(false), Some(false)),
    // Nobody records who reads.
    ("upgrade.c", Some(true), None),
];

/// Findings that somebody can never go on.
const BLOCKED: [&str; 4] = ["deadlock", "self-deadlock", "abandoned-lock", "lost-wakeup"];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (source, all, contended) in CASES {
        for (mode, proved) in [("all", all), ("contended", contended)] {
            trials.push(crate::trial(
                format!("findings::hangs::{source}::{mode}"),
                move || hangs(source, mode, *proved),
            ));
        }
    }
    trials
}

fn hangs(source: &str, mode: &str, proved: Option<bool>) -> Result<()> {
    let (folder, file) = waiting::compile_in("waits", source, C)?;
    let capture = folder.path().join("capture");
    let mut command = report::unspool()?;
    command
        .args(["record", "-q", "--budget", "none", "-o"])
        .arg(&capture);
    command.arg(format!("--sync={mode}")).arg("--").arg(file);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let recorder = Background(process::start(&mut command)?);
    let pid = Pid::from_raw(recorder.0.id().cast_signed());
    let waiting = Waiting::listen_to(recorder, Some(folder))?;
    waiting.settle(HERE)?;
    // What has lasted is told where it is not certain; threads that ended have done so long before the program.
    std::thread::sleep(Duration::from_millis(1500));
    // As by Ctrl-C: the program is asked to end, which it does.
    kill(pid, Signal::SIGINT)?;
    let told = waiting.findings.clone();
    process::wait_until("the recording is whole", Duration::from_secs(60), || {
        fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |words| words.is_empty())
    })?;
    let mut command = report::unspool()?;
    command
        .arg("report")
        .arg(&capture)
        .args(["--format", "json"]);
    let run = process::run(&mut command, Duration::from_secs(120))?.success()?;
    let report: Value = serde_json::from_slice(&run.stdout)?;
    ensure!(
        !report["notes"].to_string().contains("killed"),
        "{report:#}"
    );
    let findings = report["findings"].as_array().context("findings")?;
    let blocked = findings.iter().filter(|finding| {
        let kind = finding["kind"].as_str().unwrap_or_default();
        // Who reads and wants to write waits for itself as well.
        BLOCKED.contains(&kind) && (source != "upgrade.c" || kind == "deadlock")
    });
    let blocked: Vec<&Value> = blocked.collect();
    let Some(proved) = proved else {
        ensure!(blocked.is_empty(), "{blocked:#?}");
        return Ok(());
    };
    let ([finding], [told]) = (&blocked[..], &told[..]) else {
        anyhow::bail!("told {told:?}, found {blocked:#?}\n{findings:#?}");
    };
    let tids = finding["tids"].as_array().context("tids")?;
    let mut tids: Vec<u64> = tids.iter().filter_map(Value::as_u64).collect();
    tids.sort_unstable();
    let same = match told.kind.as_str() {
        // Of these the holder is named, too.
        "abandoned-lock" => told.tids.iter().all(|tid| tids.contains(tid)),
        _ => told.tids.is_empty() || tids == told.tids,
    };
    ensure!(
        finding["kind"] == told.kind.as_str() && finding["proved"] == proved && same,
        "told {told:?}, found {finding:#}"
    );
    Ok(())
}
