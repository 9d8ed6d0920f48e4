//! What recording one thread creation costs the program, beside gdb doing the same by hand
//! (`break pthread_create`, `bt`, `continue`) and `strace -k`, in turn in the same run.
//!
//! `cargo bench -p unspool-tests --bench creation` prints the table that docs/performance.md holds.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use unspool_tests::process;
use unspool_tests::workspace;

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
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("creation");
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O2", "-pthread", "-o"]).arg(&program);
    compiler.arg(workspace::file("benches/creation.c"));
    process::run(&mut compiler, Duration::from_secs(60))?.success()?;
    let unspool = unspool()?;
    std::fs::write(folder.path().join("gdb.commands"), GDB_COMMANDS)?;

    let mut costs = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        let alone = time(Command::new(&program).arg(THREADS.to_string()))?;
        let peers = [
            time(&mut record(&unspool, &program, folder.path()))?,
            time(&mut gdb(&program, folder.path()))?,
            time(&mut strace(&program, folder.path()))?,
        ];
        // The first round fills caches, the symbol files' among them.
        if round > 0 {
            for (costs, took) in costs.iter_mut().zip(peers) {
                costs.push(took.saturating_sub(alone).as_secs_f64() * 1e6 / f64::from(THREADS));
            }
        }
    }

    println!("added time per creation and join, {THREADS} threads, median of {ROUNDS} rounds");
    println!("{:34} {:>10} {:>24}", "", "us", "unspool is faster by");
    let names = [
        "unspool record",
        "gdb, break pthread_create + bt",
        "strace -f -k -e clone,clone3",
    ];
    for (name, peer) in names.iter().zip(&costs) {
        let ratios = peer.iter().zip(&costs[0]).map(|(peer, ours)| peer / ours);
        let [least, middle, most] = spread(ratios.collect());
        let [_, cost, _] = spread(peer.clone());
        println!("{name:34} {cost:10.0} {middle:8.1}x ({least:.1}x to {most:.1}x)");
    }
    Ok(())
}

fn record(unspool: &Path, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(unspool);
    command.args(["record", "--quiet", "--budget", "none", "-o"]);
    command.arg(folder.join("creation.capture"));
    command.arg("--").arg(program).arg(THREADS.to_string());
    command
}

fn gdb(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("gdb");
    command
        .args(["-nx", "-batch", "-x"])
        .arg(folder.join("gdb.commands"));
    command.arg("--args").arg(program).arg(THREADS.to_string());
    command
}

fn strace(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-k", "-e", "trace=clone,clone3", "-o"]);
    command.arg(folder.join("strace.out"));
    command.arg(program).arg(THREADS.to_string());
    command
}

fn time(command: &mut Command) -> Result<Duration> {
    let start = Instant::now();
    process::run(command, Duration::from_secs(300))?.success()?;
    Ok(start.elapsed())
}

/// Least, median and most.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}

/// The command as users run it: the release build.
fn unspool() -> Result<std::path::PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(workspace::root());
    build.args(["build", "--quiet", "--release", "-p", "unspool"]);
    build.env("CARGO_TARGET_DIR", workspace::target_directory());
    process::run(&mut build, Duration::from_secs(1800))?.success()?;
    let path = workspace::target_directory().join("release/unspool");
    ensure!(path.is_file(), "cargo built no {}", path.display());
    path.canonicalize().context("the command under test")
}
