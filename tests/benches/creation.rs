//! What recording one thread creation costs the program, beside gdb doing the same by hand
//! (`break pthread_create`, `bt`, `continue`), `strace -k`, and the least that any tracer pays which follows threads by ptrace, in turn in the
//! same run. An argument says how many threads.
//!
//! `cargo bench -p unspool-tests --bench creation` prints the table that docs/performance.md holds.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use unspool_tests::crowd::{compile, release, spread};
use unspool_tests::process;

/// How many threads, unless an argument says.
const THREADS: u32 = 1000;
const ROUNDS: usize = 5;

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
    let threads = std::env::args().find_map(|word| word.parse().ok());
    let threads: u32 = threads.unwrap_or(THREADS);
    let count = threads.to_string();
    let folder = tempfile::tempdir()?;
    let program = compile("cc", &["-g", "-O2", "-pthread"], "creation.c", "creation")?;
    let clones = compile("cc", &["-O2"], "clones.c", "clones")?;
    let unspool = release("unspool")?;
    std::fs::write(folder.path().join("gdb.commands"), GDB_COMMANDS)?;

    let mut costs = [const { Vec::new() }; 5];
    let mut slowdowns = costs.clone();
    for round in 0..=ROUNDS {
        let alone = time(Command::new(&program).arg(&count))?;
        let peers = [
            time(&mut record(
                &unspool,
                &program,
                folder.path(),
                &count,
                "auto",
            ))?,
            time(&mut record(
                &unspool,
                &program,
                folder.path(),
                &count,
                "traps",
            ))?,
            time(Command::new(&clones).arg(&program).arg(&count))?,
            time(&mut gdb(&program, folder.path(), &count))?,
            time(&mut strace(&program, folder.path(), &count))?,
        ];
        // The first round fills caches, the symbol files' among them.
        if round > 0 {
            for (at, took) in peers.into_iter().enumerate() {
                let added = took.saturating_sub(alone).as_secs_f64();
                costs[at].push(added * 1e6 / f64::from(threads));
                slowdowns[at].push(took.as_secs_f64() / alone.as_secs_f64());
            }
        }
    }

    println!("creation and join, {threads} threads, median of {ROUNDS} rounds");
    println!(
        "{:34} {:>10} {:>24} {:>26}",
        "", "added us", "times the program alone", "unspool adds less by"
    );
    let names = [
        "unspool record",
        "unspool record --probes traps",
        "bare ptrace, PTRACE_O_TRACECLONE",
        "gdb, break pthread_create + bt",
        "strace -f -k -e clone,clone3",
    ];
    for ((name, peer), slowdown) in names.iter().zip(&costs).zip(slowdowns) {
        let ratios = peer.iter().zip(&costs[0]).map(|(peer, ours)| peer / ours);
        let [least, middle, most] = spread(ratios.collect());
        let [_, cost, _] = spread(peer.clone());
        let [low, times, high] = spread(slowdown);
        println!(
            "{name:34} {cost:10.0} {times:8.2} ({low:.2} to {high:.2}) {middle:8.1}x ({least:.1}x to {most:.1}x)"
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

fn time(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    process::run(command, Duration::from_secs(300))?.success()?;
    Ok(start.elapsed())
}
