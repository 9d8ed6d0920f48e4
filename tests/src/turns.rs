//! Processor times of threads: `programs/findings/turns.c` prints its own, and a recording must
//! agree.
//!
//! Native trials and board trials share this module.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Compares the times in `text`, the program's output, with a report
/// (docs/reference/report-json.md). Returns a difference instead of an error if the machine was too
/// busy: the kernel lost records of the schedule, or the recorder did not run for a fifth of the
/// time.
pub fn compare(text: &str, report: &Value) -> Result<Option<String>> {
    let recording = &report["recording"];
    let [late, duration] = ["late_ns", "duration_ns"].map(|what| recording[what].as_u64());
    let (late, duration) = late.zip(duration).context("recording")?;
    let lost = recording["schedule"]["lost"].as_u64().unwrap_or(0);
    match equal(text, report) {
        Err(error) if late > duration / 5 || lost > 0 => Ok(Some(format!("{error:#}"))),
        other => other.map(|()| None),
    }
}

fn equal(text: &str, report: &Value) -> Result<()> {
    let told = text.lines().filter_map(|line| line.strip_prefix("turns "));
    let told: Vec<&str> = told.collect();
    ensure!(told.len() == 5, "{text}");
    let threads = report["threads"].as_array().context("threads")?;
    let mut all = 0;
    for line in told {
        let numbers = line.split(' ').map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().context(line.to_owned())?;
        let &[tid, on_cpu, runnable, alive] = &numbers[..] else {
            anyhow::bail!("{line}");
        };
        let thread = threads.iter().find(|thread| thread["tid"] == tid);
        let times = &thread.with_context(|| format!("no thread {tid}"))?["times"];
        // The recorder reads the kernel's times a few times per second, and extrapolates the time
        // since then.
        let slack = alive / 5;
        for (what, told) in [("on_cpu_ns", on_cpu), ("runnable_ns", runnable)] {
            let recorded = times[what]
                .as_u64()
                .with_context(|| format!("{what} of {tid}: {times:#}"))?;
            ensure!(
                recorded.abs_diff(told) <= slack,
                "{what} of {tid}: {recorded}, the program says {line}: {times:#}"
            );
        }
        all += on_cpu;
    }
    let level = &report["concurrency"];
    let duration = report["recording"]["duration_ns"]
        .as_u64()
        .context("duration")?;
    let running = level["on_cpu"]
        .as_f64()
        .with_context(|| format!("{level:#}"))?;
    let recorded = running * duration as f64;
    ensure!(
        (recorded - all as f64).abs() <= all as f64 / 4.0,
        "threads were on a processor for {recorded} ns altogether, they themselves say {all}"
    );
    Ok(())
}
