//! Tests recordings of programs that hang: the finding names the same threads as `programs/waits`.
//!
//! It is proved if every operation was recorded, and there are no other findings of its kind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use unspool_tests::process::{self, Background};
use unspool_tests::report;
use unspool_tests::waiting::{self, HERE, KernelView, Waiting};

use super::{C, MUSL, RUST};

/// A program that hangs.
struct Case {
    name: &'static str,
    source: &'static str,
    command: &'static [&'static str],
    /// Whether a complete recording proves the finding although an inspection cannot.
    all: bool,
    /// The same when only waits are recorded.
    contended: bool,
    /// Whether a recorder that attaches after the hang finds it, from memory alone.
    late: bool,
}

/// Mutexes with priority inheritance: the kernel refuses one of the waiters.
const INHERITS: &[&str] = &["gcc", "-std=gnu11", "-g", "-O0", "-pthread", "-DINHERITS"];

const CASES: &[Case] = &[
    case("abba.c", C, (true, false)),
    case("again.c", C, (true, false)),
    Case {
        late: false,
        ..case("exited.c", C, (true, true))
    },
    case("joins.c", C, (true, true)),
    case("lost.c", C, (false, false)),
    case("ring.c", C, (true, false)),
    case("timed.c", C, (false, false)),
    case("upgrade.c", C, (true, false)),
    case("rust.rs", RUST, (false, false)),
    Case {
        name: "ring.c-inherits",
        late: false,
        ..case("ring.c", INHERITS, (true, false))
    },
    Case {
        name: "upgrade.c-musl",
        ..case("upgrade.c", MUSL, (true, false))
    },
];

const fn case(
    source: &'static str,
    command: &'static [&'static str],
    (all, contended): (bool, bool),
) -> Case {
    Case {
        name: source,
        source,
        command,
        all,
        contended,
        late: true,
    }
}

/// Minimum duration of an uncertain hang to be reported.
const LASTING: Duration = Duration::from_millis(700);

/// Findings about threads that can never continue.
const BLOCKED: [&str; 4] = ["deadlock", "self-deadlock", "abandoned-lock", "lost-wakeup"];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for options in TRAFFIC {
        for asked in [Asked::Recorder, Asked::Group] {
            trials.push(crate::trial(
                format!("findings::hangs::traffic::{asked:?}::{}", options.join(" ")),
                move || after_traffic(options, asked),
            ));
        }
    }
    for case in CASES {
        for (mode, proved) in [("all", case.all), ("contended", case.contended)] {
            trials.push(crate::trial(
                format!("findings::hangs::{}::{mode}", case.name),
                move || hangs(case, mode, proved),
            ));
        }
        if case.late {
            trials.push(crate::trial(
                format!("findings::hangs::{}::attached", case.name),
                move || hung_already(case),
            ));
        }
    }
    trials
}

/// Arguments of a program that does much before it hangs.
const TRAFFIC: &[&[&str]] = &[
    &[],
    &["--sync"],
    &["--sync=all"],
    &["--sync", "--budget", "none"],
    &["--sync", "--budget", "0.1%"],
];

/// The receiver of the signal that ends the recording.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Recorder,
    /// Its process group including the program, as with the terminal's interrupt key.
    Group,
}

/// An inspection at the end finds the hang that the recording has no room or no time for.
fn after_traffic(options: &[&str], asked: Asked) -> Result<()> {
    const CASE: Case = case("traffic.c", C, (false, false));
    let (folder, file) = waiting::compile_in("waits", CASE.source, CASE.command)?;
    let capture = folder.path().join("capture");
    let mut command = report::unspool()?;
    command.args(["record", "-q", "-o"]).arg(&capture);
    command.args(options).arg("--").arg(file);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let recorder = Background(process::start(&mut command)?);
    let pid = recorder.0.id().cast_signed();
    let waiting = Waiting::listen_to(recorder, Some(folder))?;
    waiting.wait_until_blocked(HERE)?;
    let whom = match asked {
        Asked::Recorder => pid,
        Asked::Group => -pid,
    };
    kill(Pid::from_raw(whom), Signal::SIGINT)?;
    is_whole(pid)?;
    found(&waiting, &capture, &CASE, "contended", false)
}

fn is_whole(recorder: i32) -> Result<()> {
    let path = format!("/proc/{recorder}/cmdline");
    process::wait_until("the recording is whole", Duration::from_secs(60), || {
        fs::read(&path).map_or(true, |words| words.is_empty())
    })
}

/// Records a program from its start.
fn hangs(case: &Case, mode: &str, proved: bool) -> Result<()> {
    let (folder, file) = waiting::compile_in("waits", case.source, case.command)?;
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
    waiting.wait_until_blocked(KernelView {
        refused: case.command.contains(&"-DINHERITS"),
        ..HERE
    })?;
    std::thread::sleep(LASTING);
    // As with Ctrl-C, the program gets the signal, and ends.
    kill(pid, Signal::SIGINT)?;
    is_whole(pid.as_raw())?;
    found(&waiting, &capture, case, mode, proved)
}

/// Attaches to a program that already hangs, and must still hang afterwards.
fn hung_already(case: &Case) -> Result<()> {
    let (folder, file) = waiting::compile_in("waits", case.source, case.command)?;
    let capture = folder.path().join("capture");
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    let mut record = report::unspool()?;
    record.args([
        "record",
        "-q",
        "--sync",
        "--attach",
        &waiting.pid.to_string(),
    ]);
    let mut record = Background(process::start(record.arg("-o").arg(&capture))?);
    let limit = Duration::from_secs(60);
    process::wait_until("the recording begins", limit, || {
        fs::metadata(&capture).is_ok_and(|file| file.len() > 0)
    })?;
    std::thread::sleep(2 * LASTING);
    kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
    record.ends_well("the recorder", limit)?;
    // It hangs as before. Timed waits are then another system call (restart_syscall(2)).
    waiting.wait_until_blocked(KernelView {
        futexes: &[202, 219],
        ..HERE
    })?;
    found(&waiting, &capture, case, "contended", case.contended)
}

fn found(waiting: &Waiting, capture: &Path, case: &Case, mode: &str, proved: bool) -> Result<()> {
    let told = &waiting.findings;
    let mut command = report::unspool()?;
    command
        .arg("report")
        .arg(capture)
        .args(["--format", "json"]);
    let run = process::run(&mut command, Duration::from_secs(120))?.success()?;
    let report: Value = serde_json::from_slice(&run.stdout)?;
    ensure!(
        !["killed", "SIGKILL"]
            .iter()
            .any(|word| report["notes"].to_string().contains(word)),
        "{report:#}"
    );
    let findings = report["findings"].as_array().context("findings")?;
    let blocked = findings.iter().filter(|finding| {
        let kind = finding["kind"].as_str().unwrap_or_default();
        // A reader that wants to write also waits for itself.
        BLOCKED.contains(&kind) && (case.source != "upgrade.c" || kind == "deadlock")
    });
    let blocked: Vec<&Value> = blocked.collect();
    let ([finding], [told]) = (&blocked[..], &told[..]) else {
        anyhow::bail!("told {told:?}, found {blocked:#?}\n{findings:#?}");
    };
    let tids = finding["tids"].as_array().context("tids")?;
    let mut tids: Vec<u64> = tids.iter().filter_map(Value::as_u64).collect();
    tids.sort_unstable();
    let same = match told.kind.as_str() {
        // For these, the finding also names the holder.
        "abandoned-lock" => told.tids.iter().all(|tid| tids.contains(tid)),
        _ => told.tids.is_empty() || tids == told.tids,
    };
    ensure!(
        finding["kind"] == told.kind.as_str()
            && finding["proved"] == (proved || told.proved)
            && same,
        "told {told:?}, found {finding:#}"
    );
    let holders_unknown =
        case.source == "rust.rs" || case.source == "upgrade.c" && mode == "contended";
    let circle = told.kind.contains("deadlock") && !holders_unknown;
    ensure!(finding["circle"] == circle, "{finding:#}");
    // A wait that never ends is not a long wait.
    let contended = findings.iter().find(|f| f["kind"] == "contention");
    // Here, threads wait for another lock first.
    let expected = case.source == "traffic.c";
    ensure!(contended.is_none() || expected, "{contended:#?}");
    // No waiting thread has ended, although the program has.
    let threads = report["threads"].as_array().context("threads")?;
    for tid in &told.tids {
        let thread = threads.iter().find(|thread| thread["tid"] == *tid);
        ensure!(
            thread.is_some_and(|thread| thread["end"] == "alive"),
            "{thread:#?}"
        );
    }
    Ok(())
}
