//! Tests `unspool inspect --connect` and `unspool record --sync` on a real ARM kernel with our
//! stub.
//!
//! The results must equal the programs' own statements. This covers priority inheritance and dead
//! owners, which QEMU's user mode lacks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use unspool_tests::board::{self, Linked, Server};
use unspool_tests::ended;
use unspool_tests::finding::repeat_until_expected;
use unspool_tests::inspection::{Conditions, Inspection, Library};
use unspool_tests::process::{self, Background};
use unspool_tests::report;
use unspool_tests::turns;
use unspool_tests::waiting::{self, HERE, KernelView, Waiting};

use super::{ISAS, Isa, Placed, place};

/// Programs of `programs/waits`. `kinds` has a mutex of each kind, a read-write lock, condition
/// variable, semaphore and barrier.
const PROGRAMS: [&str; 9] = [
    "abba", "again", "exited", "joins", "kinds", "lost", "shared", "timed", "upgrade",
];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for isa in ISAS {
        for program in PROGRAMS {
            // One instruction set of a machine is enough for most, because the objects are the
            // same.
            if isa.name == "a32" && !["abba", "kinds"].contains(&program) {
                continue;
            }
            let name = format!("waits::{program}-{}", isa.name);
            trials.push(super::trial(&name, move || {
                check(isa, program, Linked::Glibc)
            }));
        }
        for (linked, how) in [(Linked::MuslInside, "musl-static"), (Linked::Musl, "musl")] {
            for program in ["again", "kinds"] {
                let name = format!("waits::{program}-{}-{how}", isa.name);
                trials.push(super::trial(&name, move || check(isa, program, linked)));
            }
            let name = format!("waits::recorded-{}-{how}", isa.name);
            trials.push(super::trial(&name, move || recorded(isa, linked)));
            let name = format!("waits::recorded-late-{}-{how}", isa.name);
            trials.push(super::trial(&name, move || recorded_late(isa, linked)));
            let name = format!("waits::ended.c-contended-{}-{how}", isa.name);
            trials.push(super::trial(&name, move || {
                ended(isa, "ended.c", "contended", linked)
            }));
        }
        let name = format!("waits::recorded-{}", isa.name);
        trials.push(super::trial(&name, move || recorded(isa, Linked::Glibc)));
        let name = format!("waits::recorded-late-{}", isa.name);
        trials.push(super::trial(&name, move || {
            recorded_late(isa, Linked::Glibc)
        }));
        let name = format!("waits::turns-{}", isa.name);
        trials.push(super::trial(&name, move || {
            repeat_until_expected(|| turns(isa))
        }));
        for source in ["ended.c", "ended.cpp", "ended.rs"] {
            // Some machines have no Debian g++ for arm64. Rust's code for this ARM is A32.
            let absent = match source {
                "ended.cpp" => isa.name == "a64",
                "ended.rs" => isa.name == "t32",
                _ => false,
            };
            for sync in ["contended", "all"].into_iter().filter(|_| !absent) {
                let name = format!("waits::{source}-{sync}-{}", isa.name);
                trials.push(super::trial(&name, move || {
                    ended(isa, source, sync, Linked::Glibc)
                }));
            }
        }
    }
    trials
}

fn check(isa: Isa, program: &str, linked: Linked) -> Result<()> {
    while_it_waits(isa, program, linked, |waiting, sysroot| {
        look(isa, waiting, sysroot, linked)
    })
}

/// A recorder that attaches when all threads already wait records each wait once, too.
fn recorded_late(isa: Isa, linked: Linked) -> Result<()> {
    while_it_waits(isa, "kinds", linked, |waiting, sysroot| {
        let server = isa.board()?.serve(&format!(
            "unspool-stub --budget none --once --attach 0.0.0.0:0 {}",
            waiting.pid
        ))?;
        let folder = tempfile::tempdir()?;
        let capture = folder.path().join("capture");
        let mut record = report::unspool()?;
        record.args(["record", "-q", "--sync", "--sysroot", sysroot, "--connect"]);
        record.arg(server.address()).arg("-o").arg(&capture);
        let mut record = Background(process::start(&mut record)?);
        let limit = Duration::from_secs(120);
        process::wait_until("the recording begins", limit, || {
            std::fs::metadata(&capture).is_ok_and(|file| file.len() > 0)
        })?;
        std::thread::sleep(Duration::from_secs(5));
        kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
        record.ends_well("the recorder", limit)?;
        let output = server.finish()?;
        let report = report::json(&capture, &["--sysroot", sysroot])?;
        // musl's threads wait there at words of their own, which say nothing about the object.
        let unknown: &[&str] = match linked.library() {
            Library::Musl => &["barrier", "cond"],
            _ => &[],
        };
        compare(waiting, &report, unknown)
            .with_context(|| format!("{:#}\n{output}", report["notes"]))
    })
}

/// Starts a program of `programs/waits` on the board, and calls a function when its threads wait.
fn while_it_waits(
    isa: Isa,
    program: &str,
    linked: Linked,
    act: impl Fn(&Waiting, &str) -> Result<()>,
) -> Result<()> {
    let compiler = isa.machine.tool("gcc");
    let mut command = vec![&*compiler, "-std=gnu11", "-g", "-O1", "-pthread", isa.flag];
    let options = linked.options(isa.machine)?;
    command.extend(options.iter().map(String::as_str));
    let (_folder, file) = waiting::compile(&format!("{program}.c"), &command)?;
    let placed = place(isa.machine, &file)?;
    let board = isa.board()?;
    // Its own pipe, which stays open, because some programs wait for standard input.
    let there = &placed.there;
    let pid = board.shell(&format!(
        "mkfifo {there}.in; {there} <>{there}.in >{there}.out 2>&1 & echo $!"
    ))?;
    let pid: u32 = pid.trim().parse().with_context(|| pid.clone())?;
    let sysroot = placed.sysroot.path().display().to_string();
    let result =
        read_statements(isa, pid, there, linked).and_then(|waiting| act(&waiting, &sysroot));
    board.shell(&format!("kill -9 {pid}"))?;
    result
}

fn look(isa: Isa, waiting: &Waiting, sysroot: &str, linked: Linked) -> Result<()> {
    let board = isa.board()?;
    let server = board.serve(&format!(
        "unspool-stub --once --attach 0.0.0.0:0 {}",
        waiting.pid
    ))?;
    let (seen, run) = Inspection::of(&["--connect", &server.address(), "--sysroot", sysroot])?;
    let output = server.finish()?;
    let conditions = Conditions {
        library: linked.library(),
        named: true,
        state: "waiting",
        low: if isa.name == "a64" {
            0x7000_0000_0000
        } else {
            0x7000_0000
        },
        // The stub halts the program to which it attaches, and an inspection leaves it halted.
        stands: true,
    };
    seen.compare(waiting, conditions)
        .with_context(|| format!("{run}\n{output}"))
}

/// Reads the statements that a program on the board writes to a file, and waits until its threads
/// wait.
fn read_statements(isa: Isa, pid: u32, there: &str, linked: Linked) -> Result<Waiting> {
    let board = isa.board()?;
    let deadline = Instant::now() + Duration::from_secs(120);
    let (mut seen, mut lines) = (0, VecDeque::new());
    let waiting = Waiting::parse(pid, || {
        while lines.is_empty() {
            ensure!(Instant::now() < deadline, "the program says nothing more");
            let text = board.shell(&format!("cat {there}.out"))?;
            // Complete lines only.
            let new: Vec<&str> = text.split_inclusive('\n').skip(seen).collect();
            let whole = new.iter().filter(|line| line.ends_with('\n'));
            lines.extend(whole.map(|line| line.trim_end().to_owned()));
            seen += lines.len();
        }
        lines.pop_front().context("a line")
    })?;
    // And restart_syscall, with which a timed wait continues after an interruption.
    let futexes: &[u64] = match isa.machine {
        board::Machine::Arm => &[240, 422, 0],
        board::Machine::Arm64 => &[98, 128],
    };
    let view = KernelView {
        futexes,
        own_words: linked.library() == Library::Musl,
        ..HERE
    };
    waiting.wait_until_blocked_by(view, || calls(isa, waiting.pid))?;
    Ok(waiting)
}

/// Records an object of each kind, from the first instruction until all threads wait. The number of
/// waits and their threads must equal the program's statements.
fn recorded(isa: Isa, linked: Linked) -> Result<()> {
    let recording = Recording::start(isa, "waits", "kinds.c", "contended", linked)?;
    let (board, there) = (isa.board()?, &recording.placed.there);
    let pid = board.shell(&format!(
        "for p in /proc/[0-9]*; do [ \"$(readlink $p/exe)\" = {there} ] && echo ${{p##*/}}; done"
    ))?;
    let pid: u32 = pid.trim().parse().with_context(|| pid.clone())?;
    let waiting = read_statements(isa, pid, there, linked)?;
    // Not SIGKILL, which would lose hits that were not sent yet.
    board.shell(&format!("kill {pid}"))?;
    let (report, output) = recording.finish()?;
    compare(&waiting, &report, &[]).with_context(|| format!("{:#}\n{output}", report["notes"]))
}

/// Records a wait of each kind: the thread that ended it, and its duration.
fn ended(isa: Isa, source: &str, sync: &str, linked: Linked) -> Result<()> {
    let recording = Recording::start(isa, "findings", source, sync, linked)?;
    let said = format!("cat {}.out", recording.placed.there);
    let (report, output) = recording.finish()?;
    let said = isa.board()?.shell(&said)?;
    let told = ended::parse_all(&said)?;
    let waits = match source {
        "ended.c" => 13,
        "ended.cpp" => 7,
        _ => 5,
    };
    ensure!(told.len() == waits, "{said}\n{output}");
    ended::compare(&told, &report).with_context(|| format!("{:#}\n{output}", report["notes"]))
}

/// Tests the processor times of threads.
fn turns(isa: Isa) -> Result<Option<String>> {
    let recording = Recording::start(isa, "findings", "turns.c", "contended", Linked::Glibc)?;
    let said = format!("cat {}.out", recording.placed.there);
    let (report, output) = recording.finish()?;
    let said = isa.board()?.shell(&said)?;
    turns::compare(&said, &report).with_context(|| format!("{:#}\n{output}", report["notes"]))
}

/// A recording of a program on the board from its first instruction. The program's output is in
/// `.out` there; its input never ends.
pub(super) struct Recording {
    pub(super) placed: Placed,
    server: Server,
    record: Background,
    capture: PathBuf,
    _folder: TempDir,
}

impl Recording {
    fn start(
        isa: Isa,
        parent: &str,
        source: &str,
        sync: &str,
        linked: Linked,
    ) -> Result<Recording> {
        Recording::of(isa, parent, source, &[], sync, linked)
    }

    /// With arguments.
    pub(super) fn with(
        isa: Isa,
        parent: &str,
        source: &str,
        arguments: &[&str],
        sync: &str,
    ) -> Result<Recording> {
        Recording::of(isa, parent, source, arguments, sync, Linked::Glibc)
    }

    fn of(
        isa: Isa,
        parent: &str,
        source: &str,
        arguments: &[&str],
        sync: &str,
        linked: Linked,
    ) -> Result<Recording> {
        let tool = |name| isa.machine.tool(name);
        let (gcc, gxx) = (tool("gcc"), tool("g++"));
        let target = format!("--target={}", isa.machine.triple());
        let linker = format!("-Clinker={gcc}");
        let plain = ["-g", "-O1", "-pthread", isa.flag];
        let mut command: Vec<&str> = match source.rsplit('.').next() {
            Some("cpp") => [&[&gxx, "-std=c++20"], &plain[..]].concat(),
            Some("rs") => vec!["rustc", "-g", "-O", "--edition=2021", &target, &linker],
            _ => [&[&gcc, "-std=gnu11"], &plain[..]].concat(),
        };
        let options = linked.options(isa.machine)?;
        command.extend(options.iter().map(String::as_str));
        let (folder, file) = waiting::compile_in(parent, source, &command)?;
        let placed = place(isa.machine, &file)?;
        let (board, there) = (isa.board()?, &placed.there);
        board.shell(&format!("mkfifo {there}.in"))?;
        let server = board.serve(&format!(
            "unspool-stub --budget none --once 0.0.0.0:0 {there} {} <>{there}.in >{there}.out",
            arguments.join(" ")
        ))?;
        let capture = folder.path().join("capture");
        let mut record = report::unspool()?;
        let sync = format!("--sync={sync}");
        record.args(["record", "-q", &sync, "--sysroot"]);
        record.arg(placed.sysroot.path()).arg("-o").arg(&capture);
        record.args(["--connect", &server.address()]);
        Ok(Recording {
            record: Background(process::start(&mut record)?),
            placed,
            server,
            capture,
            _folder: folder,
        })
    }

    /// The report and the stub's output, once the program has ended.
    pub(super) fn finish(mut self) -> Result<(Value, String)> {
        process::wait_until("the recording ends", Duration::from_secs(300), || {
            matches!(self.record.0.try_wait(), Ok(Some(_)))
        })?;
        let output = self.server.finish()?;
        let sysroot = self.placed.sysroot.path().display().to_string();
        let report = report::json(&self.capture, &["--sysroot", &sysroot])?;
        Ok((report, output))
    }
}

/// Compares, except for objects of these kinds.
fn compare(waiting: &Waiting, report: &Value, unknown: &[&str]) -> Result<()> {
    let threads = report["threads"].as_array().context("threads")?;
    let told = waiting.waits.values().map(|told| told.address);
    let known: BTreeSet<u64> = told.chain(waiting.mutexes.values().copied()).collect();
    let mut places: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for told in waiting.waits.values() {
        // The program does not know the address of a joined thread's handle.
        if told.address != 0 && !unknown.contains(&told.kind.as_str()) {
            *places.entry((&told.kind, told.address)).or_default() += 1;
        }
    }
    let mut wrong = Vec::new();
    for ((kind, address), count) in places {
        let here = report::objects(report, kind, address, &known);
        let waits = here.map(|object| object["waits"]["count"].as_u64().unwrap_or(0));
        let waits: u64 = waits.sum();
        if waits != count {
            wrong.push(format!(
                "{count} wait for the {kind} at {address:#x}, recorded: {waits}"
            ));
        }
    }
    ensure!(
        wrong.is_empty(),
        "{}\n{:#}",
        wrong.join("\n"),
        report["objects"]
    );
    for (tid, told) in &waiting.waits {
        let thread = threads.iter().find(|thread| thread["tid"] == *tid);
        let times = &thread.with_context(|| format!("no thread {tid}"))?["times"];
        let waited = ["held_ns", "others_ns", "idle_ns"].map(|time| times[time].as_u64());
        ensure!(
            waited.iter().flatten().any(|time| *time > 0),
            "{tid} waits for {told:?}: {times:#}"
        );
    }
    Ok(())
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
