//! Measures how long `unspool inspect` takes to print the proof of a deadlock of a thousand
//! threads, and to exit. Each thread holds a mutex and waits for the next one.
//!
//! `cargo bench -p unspool-tests --bench deadlock` prints the table in
//! docs/internals/performance.md.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use unspool_tests::crowd::{self, min_median_max};
use unspool_tests::waiting::{self, Waiting};

const THREADS: usize = 1000;
const ROUNDS: usize = 7;

fn main() -> Result<()> {
    let unspool = crowd::release("unspool")?;
    let (folder, program) =
        waiting::compile("ring.c", &["gcc", "-std=gnu11", "-g", "-O1", "-pthread"])?;
    let mut command = Command::new(program);
    command.arg(THREADS.to_string());
    let waiting = Waiting::start(&mut command, folder)?;
    waiting.wait_until_blocked(waiting::HERE)?;
    let pid = waiting.pid.to_string();
    let proof = format!("{THREADS} threads wait for each other");
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let mut command = Command::new(&unspool);
        command.args(["inspect", "--attach", &pid]);
        let (proved, ended) = times(&mut command, |line| line.contains(&proof))?;
        let Some(proved) = proved else {
            bail!("no proof");
        };
        let mut command = Command::new("eu-stack");
        let (_, peer) = times(command.args(["-p", &pid]), |_| false)?;
        if round > 0 {
            for (times, time) in took.iter_mut().zip([proved, ended, peer]) {
                times.push(time.as_secs_f64() * 1e3);
            }
        }
    }
    println!("a deadlock among {THREADS} threads, {ROUNDS} rounds in turn");
    let rows = [
        "unspool inspect --attach, to the printed proof",
        "unspool inspect --attach, to its end",
        "eu-stack -p, to its end",
    ];
    for (name, times) in rows.iter().zip(took) {
        let [least, middle, most] = min_median_max(times);
        println!("{name:48} {middle:8.0} ms ({least:.0} to {most:.0})");
    }
    Ok(())
}

/// The time until a command prints a line of this kind, and until it exits.
fn times(
    command: &mut Command,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(Option<Duration>, Duration)> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().context("standard output is a pipe")?;
    let mut wanted = None;
    for line in BufReader::new(out).lines() {
        if is_wanted(&line?) && wanted.is_none() {
            wanted = Some(start.elapsed());
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok((wanted, start.elapsed()))
}
