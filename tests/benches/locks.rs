//! Measures the overhead of recording locks for a program that does little else.
//!
//! The peers are Helgrind, DRD, `strace -f -k -e futex`, `perf trace`, bpftrace, and gdb with
//! breakpoints at lock and unlock. All run in turn. The output names peers that do not run here.
//!
//! `cargo bench -p unspool-tests --bench locks` prints the table in docs/internals/performance.md.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use unspool_tests::process;
use unspool_tests::workspace;

const THREADS: &str = "2";
const ROUNDS: usize = 3;

/// A tool, its command line, and the number of pairs that take it some seconds.
struct Tool {
    name: &'static str,
    words: &'static [&'static str],
    pairs: u32,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "unspool record --sync",
        words: &["unspool", "record", "-q", "-o", "capture", "--sync", "--"],
        pairs: 20_000_000,
    },
    Tool {
        name: "unspool record --sync=all",
        words: &[
            "unspool",
            "record",
            "-q",
            "-o",
            "capture",
            "--sync=all",
            "--",
        ],
        pairs: 5_000_000,
    },
    Tool {
        name: "unspool record --sync=all --budget none",
        words: &[
            "unspool",
            "record",
            "-q",
            "-o",
            "capture",
            "--sync=all",
            "--budget",
            "none",
            "--",
        ],
        pairs: 10_000,
    },
    Tool {
        name: "valgrind --tool=helgrind",
        words: &["valgrind", "-q", "--tool=helgrind"],
        pairs: 50_000,
    },
    Tool {
        name: "valgrind --tool=drd",
        words: &["valgrind", "-q", "--tool=drd"],
        pairs: 50_000,
    },
    Tool {
        name: "strace -f -k -e futex",
        words: &["strace", "-f", "-k", "-e", "futex", "-o", "/dev/null"],
        pairs: 5_000,
    },
    Tool {
        name: "perf trace -e futex",
        words: &["perf", "trace", "-e", "futex", "-o", "/dev/null"],
        pairs: 1_000_000,
    },
    Tool {
        name: "bpftrace, futex calls by thread and stack",
        words: &[
            "bpftrace",
            "-e",
            "tracepoint:syscalls:sys_enter_futex { @[tid, ustack] = count(); }",
            AS_ONE_WORD,
        ],
        pairs: 1_000_000,
    },
    Tool {
        name: "gdb, two breakpoints with bt",
        words: &["gdb", "-q", "-batch", "-nx", "-x", "gdb.commands", "--args"],
        pairs: 300,
    },
];

/// The argument after this option is a command line in one word.
const AS_ONE_WORD: &str = "-c";

const GDB_COMMANDS: &str = "\
set pagination off
set breakpoint pending on
break pthread_mutex_lock
commands
silent
bt
continue
end
break pthread_mutex_unlock
commands
silent
bt
continue
end
run
";

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("locks");
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O2", "-pthread", "-o"]).arg(&program);
    compiler.arg(workspace::file("benches/locks.c"));
    process::run(&mut compiler, Duration::from_secs(60))?.success()?;
    std::fs::write(folder.path().join("gdb.commands"), GDB_COMMANDS)?;
    let unspool = unspool_tests::crowd::release("unspool")?;

    println!(
        "time of a pair of lock and unlock, {THREADS} threads, median of {ROUNDS} rounds, ns and times of that alone"
    );
    println!(
        "{:42} {:>12} {:>8} {:>12} {:>8}",
        "", "own mutex", "", "one for all", ""
    );
    let alone = |how: &str, pairs: u32| -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(pair(
                Command::new(&program).args([how, THREADS, &pairs.to_string()]),
                folder.path(),
                how == "own",
            )?);
        }
        Ok(median(times))
    };
    for tool in TOOLS {
        let mut line = format!("{:42}", tool.name);
        for how in ["own", "shared"] {
            let runs = (0..ROUNDS).map(|_| {
                let mut command = called(tool, &unspool, &program, how);
                pair(&mut command, folder.path(), how == "own")
            });
            match runs.collect::<Result<Vec<f64>>>() {
                Ok(times) => {
                    let (took, alone) = (median(times), alone(how, 20_000_000)?);
                    line.push_str(&format!(" {took:12.0} {:8.2}", took / alone));
                }
                Err(error) if tool.words[0] == "unspool" => return Err(error),
                Err(error) => {
                    line.push_str(&format!(" does not run here: {error:#}"));
                    break;
                }
            }
        }
        println!("{line}");
    }
    Ok(())
}

/// The command of the program under a tool.
fn called(tool: &Tool, unspool: &Path, program: &Path, how: &str) -> Command {
    let (first, options) = (tool.words[0], &tool.words[1..]);
    let mut command = match first {
        "unspool" => Command::new(unspool),
        _ => Command::new(first),
    };
    let pairs = tool.pairs.to_string();
    command.args(options);
    if options.last() == Some(&AS_ONE_WORD) {
        command.arg(format!("{} {how} {THREADS} {pairs}", program.display()));
    } else {
        command.arg(program).args([how, THREADS, &pairs]);
    }
    command
}

/// The program's time for a pair; `own` means a mutex for each thread.
fn pair(command: &mut Command, folder: &Path, own: bool) -> Result<f64> {
    let run = process::run(command.current_dir(folder), Duration::from_secs(600))?.success()?;
    let text = run.text();
    // If no thread waits: the processors' time, which does not depend on other programs.
    let number = text.lines().rev().find_map(|line| {
        let (wall, used) = line.trim().split_once(' ')?;
        let (wall, used): (f64, f64) = (wall.parse().ok()?, used.parse().ok()?);
        Some(if own { used } else { wall })
    });
    number.with_context(|| run.to_string())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
