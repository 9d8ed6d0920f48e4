//! Who waits for whom on a real ARM kernel, by our own stub: what `unspool inspect --connect` says is what programs say of
//! themselves, priority inheritance and dead owners included, which QEMU's user mode does not have.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::board;
use unspool_tests::looking::{Inspection, Library, Sight};
use unspool_tests::waiting::{self, HERE, Settling, Waiting};

use super::{ISAS, Isa, place};

/// Programs of `programs/waits`; `kinds` has a mutex of each kind, a read-write lock, condition variable, semaphore and barrier.
const PROGRAMS: [&str; 9] = [
    "abba", "again", "exited", "joins", "kinds", "lost", "shared", "timed", "upgrade",
];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for isa in ISAS {
        for program in PROGRAMS {
            // One instruction set of a machine does for most: the objects are the same.
            if isa.name == "a32" && !["abba", "kinds"].contains(&program) {
                continue;
            }
            let name = format!("waits::{program}-{}", isa.name);
            trials.push(super::trial(&name, move || check(isa, program)));
        }
    }
    trials
}

fn check(isa: Isa, program: &str) -> Result<()> {
    let compiler = isa.machine.tool("gcc");
    let command = [&compiler, "-std=gnu11", "-g", "-O1", "-pthread", isa.flag];
    let (_folder, file) = waiting::compile(&format!("{program}.c"), &command)?;
    let placed = place(isa.machine, &file)?;
    let board = isa.board()?;
    // A pipe of its own, which nobody closes: some programs wait for more on their standard input.
    let there = &placed.there;
    let pid = board.shell(&format!(
        "mkfifo {there}.in; {there} <>{there}.in >{there}.out 2>&1 & echo $!"
    ))?;
    let pid: u32 = pid.trim().parse().with_context(|| pid.clone())?;
    let result = look(
        isa,
        pid,
        &placed.sysroot.path().display().to_string(),
        there,
    );
    board.shell(&format!("kill -9 {pid}"))?;
    result
}

fn look(isa: Isa, pid: u32, sysroot: &str, there: &str) -> Result<()> {
    let board = isa.board()?;
    let deadline = Instant::now() + Duration::from_secs(120);
    let (mut seen, mut lines) = (0, VecDeque::new());
    let waiting = Waiting::told(pid, || {
        while lines.is_empty() {
            ensure!(Instant::now() < deadline, "the program says nothing more");
            let text = board.shell(&format!("cat {there}.out"))?;
            // Whole lines only.
            let new: Vec<&str> = text.split_inclusive('\n').skip(seen).collect();
            let whole = new.iter().filter(|line| line.ends_with('\n'));
            lines.extend(whole.map(|line| line.trim_end().to_owned()));
            seen += lines.len();
        }
        lines.pop_front().context("a line")
    })?;
    let futexes: &[u64] = match isa.machine {
        board::Machine::Arm => &[240, 422],
        board::Machine::Arm64 => &[98],
    };
    waiting.settle_by(Settling { futexes, ..HERE }, || calls(isa, waiting.pid))?;
    let server = board.serve(&format!(
        "unspool-stub --once --attach 0.0.0.0:0 {}",
        waiting.pid
    ))?;
    let (seen, run) = Inspection::of(&["--connect", &server.address(), "--sysroot", sysroot])?;
    let output = server.finish()?;
    let sight = Sight {
        library: Library::Glibc,
        named: true,
        state: "waiting",
        low: if isa.name == "a64" {
            0x7000_0000_0000
        } else {
            0x7000_0000
        },
        stands: false,
    };
    seen.compare(&waiting, sight)
        .with_context(|| format!("{run}\n{output}"))
}

/// The system call that each thread is in.
fn calls(isa: Isa, pid: u32) -> Result<BTreeMap<u64, String>> {
    let script =
        format!("for task in /proc/{pid}/task/*; do echo ${{task##*/}} $(cat $task/syscall); done");
    let text = isa.board()?.shell(&script)?;
    let call = |line: &str| {
        let (tid, call) = line.split_once(' ')?;
        Some((tid.parse().ok()?, call.to_owned()))
    };
    Ok(text.lines().filter_map(call).collect())
}
