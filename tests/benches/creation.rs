//! Measures the cost of recording one thread creation.
//!
//! The peers are gdb (`break pthread_create`, `bt`, `continue`), `strace -k`, and the minimum for
//! any tracer that follows threads by ptrace. All run in turn. The program itself measures a
//! creation and a join. The arguments are the number of threads, and the number for peers that need
//! a millisecond for each (gdb, strace).
//!
//! `cargo bench -p unspool-tests --bench creation` prints the table in
//! docs/internals/performance.md.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use unspool_tests::crowd::{compile, min_median_max, release};
use unspool_tests::process;

/// Number of threads, unless arguments state it.
const THREADS: [u32; 2] = [20_000, 2_000];
const ROUNDS: usize = 7;

const GDB_COMMANDS: &str = "\
set pagination off
set breakpoint pending on
break pthread_create
commands
silent
bt
continue
end
run
";

fn main() -> Result<()> {
    let mut threads = THREADS;
    let numbers = std::env::args().filter_map(|word| word.parse().ok());
    for (threads, number) in threads.iter_mut().zip(numbers) {
        *threads = number;
    }
    let [many, few] = threads.map(|threads| threads.to_string());
    let folder = tempfile::tempdir()?;
    let program = compile("cc", &["-g", "-O2", "-pthread"], "creation.c", "creation")?;
    let clones = compile("cc", &["-O2"], "clones.c", "clones")?;
    let unspool = release("unspool")?;
    std::fs::write(folder.path().join("gdb.commands"), GDB_COMMANDS)?;

    let recorded = |probes| record(&unspool, &program, folder.path(), &many, probes);
    let mut alone = Command::new(&program);
    alone.arg(&many);
    let mut bare = Command::new(&clones);
    bare.arg(&program).arg(&many);
    let mut peers = [
        ("the program alone", alone),
        ("unspool record", recorded("auto")),
        ("unspool record --probes traps", recorded("traps")),
        ("bare ptrace, PTRACE_O_TRACECLONE", bare),
        (
            "gdb, break pthread_create + bt",
            gdb(&program, folder.path(), &few),
        ),
        (
            "strace -f -k -e clone,clone3",
            strace(&program, folder.path(), &few),
        ),
    ];
    let mut costs = [const { Vec::new() }; 6];
    for round in 0..=ROUNDS {
        for ((_, command), costs) in peers.iter_mut().zip(&mut costs) {
            let each = each(command)?;
            // The first round fills caches, including those of symbol files.
            if round > 0 {
                costs.push(each);
            }
        }
    }

    println!("creation and join, {many} threads (gdb and strace {few}), median of {ROUNDS} rounds");
    println!(
        "{:34} {:>8} {:>26} {:>26}",
        "", "us each", "times the program alone", "times unspool record"
    );
    for ((name, _), peer) in peers.iter().zip(&costs) {
        let times = |other: &[f64]| {
            let ratios = peer.iter().zip(other).map(|(peer, other)| peer / other);
            let [low, middle, high] = min_median_max(ratios.collect());
            format!("{middle:.2} ({low:.2} to {high:.2})")
        };
        let [_, cost, _] = min_median_max(peer.clone());
        println!(
            "{name:34} {:8.1} {:>26} {:>26}",
            cost / 1000.0,
            times(&costs[0]),
            times(&costs[1])
        );
    }
    Ok(())
}

fn record(unspool: &Path, program: &Path, folder: &Path, count: &str, probes: &str) -> Command {
    let mut command = Command::new(unspool);
    command.args([
        "record", "--quiet", "--budget", "none", "--probes", probes, "-o",
    ]);
    command.arg(folder.join("creation.capture"));
    command.arg("--").arg(program).arg(count);
    command
}

fn gdb(program: &Path, folder: &Path, count: &str) -> Command {
    let mut command = Command::new("gdb");
    command
        .args(["-nx", "-batch", "-x"])
        .arg(folder.join("gdb.commands"));
    command.arg("--args").arg(program).arg(count);
    command
}

fn strace(program: &Path, folder: &Path, count: &str) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-k", "-e", "trace=clone,clone3", "-o"]);
    command.arg(folder.join("strace.out"));
    command.arg(program).arg(count);
    command
}

/// Nanoseconds for a creation and a join, as the program measures them.
fn each(command: &mut Command) -> Result<f64> {
    let output = process::run(command, Duration::from_secs(300))?
        .success()?
        .text();
    let mut lines = output.lines();
    let each = lines.find_map(|line| line.strip_prefix("each "));
    Ok(each
        .context("the program has not said how long it took")?
        .parse()?)
}
