//! Tests the kernel's schedule in recordings: against the kernel's counters, and where the kernel
//! refuses it.

use std::fs;
use std::ops::RangeInclusive;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use unspool_tests::finding::{MUSL, RUST};
use unspool_tests::process::Background;
use unspool_tests::{process, report, waiting, workspace};

pub(crate) fn trials() -> Vec<Trial> {
    [
        (
            "equals_the_kernels_counters",
            counters as fn() -> Result<()>,
        ),
        ("names_system_calls", || system_calls(C, IN_PROGRAM)),
        ("names_system_calls::glibc-2.41", || {
            system_calls_of_newer_glibc(IN_PROGRAM)
        }),
        ("names_system_calls::by_number", || {
            system_calls(&[C, BY_NUMBER].concat(), IN_PROGRAM)
        }),
        ("names_system_calls::by_number_in_static_program", || {
            system_calls(&[C, BY_NUMBER, &["-static"]].concat(), IN_PROGRAM)
        }),
        ("names_system_calls::by_number_in_musl", || {
            system_calls(&[MUSL, BY_NUMBER].concat(), IN_PROGRAM)
        }),
        ("names_system_calls::musl", || {
            system_calls(MUSL, IN_PROGRAM)
        }),
        ("names_system_calls::rust", || calls_of_rust(IN_PROGRAM)),
        ("names_system_calls::in_started_program", || {
            system_calls(&[C, BY_NUMBER].concat(), IN_STARTED)
        }),
        ("names_system_calls::in_started_program::glibc-2.41", || {
            system_calls_of_newer_glibc(IN_STARTED)
        }),
        ("names_system_calls::in_started_program::static", || {
            system_calls(&[C, BY_NUMBER, &["-static"]].concat(), IN_STARTED)
        }),
        ("names_system_calls::in_started_program::rust", || {
            calls_of_rust(IN_STARTED)
        }),
        ("names_system_calls::in_forked_process", || {
            system_calls(&[C, BY_NUMBER, &["-DFORK"]].concat(), IN_PROGRAM)
        }),
        ("names_calls_begun_before", calls_begun_before),
        ("names_files_of_reused_descriptors", reused_descriptors),
        ("names_wakers_of_system_calls", wakers),
        ("of_other_processes", processes),
        ("refused", refused),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("schedule::{name}"), check))
    .collect()
}

const C: &[&str] = &["gcc", "-g", "-O1", "-pthread"];
const BY_NUMBER: &[&str] = &["-DBY_NUMBER"];

/// How the recorder runs a program: itself, or through a shell that starts it twice.
const IN_PROGRAM: &[&str] = &[];
const IN_STARTED: &[&str] = &["sh", "-c", "sh -c '\"$0\"; true' \"$0\"; true"];

const LIMIT: Duration = Duration::from_secs(120);

/// The unit of `/proc/stat` (proc(5)), in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// The time that the kernel takes at most, on average, to switch to another thread.
const SWITCH_NS: u64 = 15_000;

/// The time that the host of a virtual machine has taken from its processors.
fn stolen_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/stat")?;
    let ticks = text.split_whitespace().nth(8).context("steal")?;
    Ok(ticks.parse::<u64>()? * TICK_NS)
}

/// A thread that sleeps before, during and after a recording has a known wait.
fn calls_begun_before() -> Result<()> {
    let mut program = Command::new("python3");
    program.args(["-c", "import select; select.epoll().poll()"]);
    let program = Background(process::start(&mut program)?);
    let pid = program.0.id();
    let call = format!("/proc/{pid}/syscall");
    process::wait_until("the program sleeps", LIMIT, || {
        let call = fs::read_to_string(&call).unwrap_or_default();
        call.starts_with(&format!("{} ", nix::libc::SYS_epoll_wait))
    })?;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--duration", "0.2", "-o"]);
    record.arg(&capture).args(["--attach", &pid.to_string()]);
    process::run(&mut record, LIMIT)?.success()?;
    let json = report::json(&capture, &[])?;
    let calls = &json["threads"][0]["schedule"]["system_calls"];
    ensure!(calls[0]["call"] == "epoll_wait", "{calls:#}");
    ensure!(
        calls.as_array().is_some_and(|calls| calls.len() == 1),
        "{calls:#}"
    );
    Ok(())
}

/// Each process prints its processor time just before it ends. A plain recording must have the same
/// processes, creators, threads and times.
fn processes() -> Result<()> {
    let (folder, file) = waiting::compile_in(".", "family.c", C)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "-o"]);
    record.arg(&capture).arg("--").arg(file);
    let before_ns = stolen_ns()?;
    let run = process::run(&mut record, LIMIT)?.success()?;
    let stolen_ns = stolen_ns()? - before_ns + TICK_NS;
    let json = report::json(&capture, &[])?;
    let recorded = json["processes"].as_array().context("processes")?;
    let text = run.text();
    let printed = text
        .lines()
        .filter_map(|line| line.strip_prefix("process "));
    let printed: Vec<&str> = printed.collect();
    ensure!(
        (printed.len(), recorded.len()) == (3, 3),
        "{run}\n{recorded:#?}"
    );
    for line in printed {
        let numbers: Vec<u64> = (line.split(' ').map(str::parse))
            .collect::<Result<_, _>>()
            .context(line.to_owned())?;
        let &[pid, parent, threads, on_cpu_ns] = &numbers[..] else {
            anyhow::bail!("{line}");
        };
        let process = recorded.iter().find(|process| process["pid"] == pid);
        let process = process.with_context(|| format!("no process {pid}"))?;
        ensure!(process["creator_tid"] == parent, "{line}: {process:#}");
        ensure!(
            process["threads"].as_array().map(Vec::len) == usize::try_from(threads).ok(),
            "{line}: {process:#}"
        );
        ensure!(process["program"] == "family", "{process:#}");
        // Its end takes some time, too.
        let running_ns = process["times"]["running_ns"].as_u64().context("times")?;
        ensure!(
            running_ns.abs_diff(on_cpu_ns) <= on_cpu_ns / 50 + 5_000_000 + stolen_ns,
            "{line}: {process:#}"
        );
        ensure!(process["times"]["unknown_ns"] == 0, "{process:#}");
    }
    // The program itself only waits, so most of the critical path is in the others.
    let groups = json["critical_path"]["groups"]
        .as_array()
        .context("groups")?;
    let others = groups.iter().filter(|group| group["program"] == "family");
    let share: f64 = others.filter_map(|group| group["share"].as_f64()).sum();
    ensure!(share > 0.5, "{share}: {:#}", json["critical_path"]);
    Ok(())
}

/// Each thread prints the kernel's counters just before it ends. A plain recording must have the
/// same times, and its states must add up to the thread's life.
fn counters() -> Result<()> {
    let (folder, file) = waiting::compile_in("findings", "turns.c", C)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "-o"]);
    record.arg(&capture).arg("--").arg(file);
    let before_ns = stolen_ns()?;
    let run = process::run(&mut record, LIMIT)?.success()?;
    // The kernel truncates both numbers.
    let stolen_ns = stolen_ns()? - before_ns + TICK_NS;
    let json = report::json(&capture, &[])?;
    let schedule = &json["recording"]["schedule"];
    ensure!(schedule["lost"] == 0, "{schedule:#}");
    let recorded_ns = schedule["stolen_ns"].as_u64().context("stolen_ns")?;
    ensure!(recorded_ns <= stolen_ns, "{schedule:#}");
    let threads = json["threads"].as_array().context("threads")?;
    let mut compared = 0;
    let text = run.text();
    for line in text.lines().filter_map(|line| line.strip_prefix("turns ")) {
        let numbers = line.split(' ').map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().context(line.to_owned())?;
        let &[tid, on_cpu, runnable, alive] = &numbers[..] else {
            anyhow::bail!("{line}");
        };
        let thread = threads.iter().find(|thread| thread["tid"] == tid);
        let thread = thread.with_context(|| format!("no thread {tid}"))?;
        let times = &thread["schedule"];
        let number = |what: &str| times[what].as_u64().context(format!("{what}: {thread:#}"));
        // The counters change when the scheduler begins to switch, and the record comes near the
        // end of the switch. What it does between depends on the thread that it switches from.
        let switching_ns = number("switches")? * SWITCH_NS;
        // It reads the counters, prints, and ends. On a busy machine it may have to wait between.
        let (from, to) = life(thread)?;
        let ending_ns = (to - from).saturating_sub(alive);
        let near = |recorded: u64, counted: u64| {
            let allowed = counted / 100 + 2_000_000 + switching_ns + ending_ns;
            // The counter of the running time leaves out the time that the host took.
            recorded.abs_diff(counted) <= allowed + stolen_ns
        };
        ensure!(near(number("running_ns")?, on_cpu), "{line}\n{times:#}");
        if schedule["wakers"] == true {
            ensure!(near(number("runnable_ns")?, runnable), "{line}\n{times:#}");
        }
        compared += 1;
    }
    ensure!(compared == 5, "{text}");
    for thread in threads {
        let times = &thread["schedule"];
        let states = [
            "running_ns",
            "runnable_ns",
            "blocked_ns",
            "stopped_ns",
            "unknown_ns",
        ];
        let sum: u64 = states.iter().filter_map(|what| times[*what].as_u64()).sum();
        let (from, to) = life(thread)?;
        ensure!(sum.abs_diff(to - from) <= (to - from) / 200, "{thread:#}");
    }
    let mut view = report::unspool()?;
    view.arg("report")
        .arg(&capture)
        .args(["--view", "timeline"]);
    let timeline = process::run(&mut view, LIMIT)?.success()?.text();
    ensure!(timeline.contains("█ ran"), "{timeline}");
    ensure!(timeline.contains(" blocked"), "{timeline}");
    Ok(())
}

/// When a thread started and when it ended.
fn life(thread: &Value) -> Result<(u64, u64)> {
    let times = thread["started_ns"]
        .as_u64()
        .zip(thread["ended_ns"].as_u64());
    times.with_context(|| format!("{thread:#}"))
}

/// The same with a C library whose cancellable calls pass their numbers on the stack; stripped.
fn system_calls_of_newer_glibc(by: &[&str]) -> Result<()> {
    let folder = workspace::newer_glibc("amd64")?.join("usr/lib/x86_64-linux-gnu");
    let folder = folder.display();
    let linker = format!("-Wl,--dynamic-linker={folder}/ld-linux-x86-64.so.2");
    let path = format!("-Wl,-rpath={folder}");
    system_calls(&[C, &[&linker, &path]].concat(), by)
}

/// The report names the call and the file that each thread of the program prints before it blocks.
/// Short waits count, too.
fn system_calls(compiler: &[&str], by: &[&str]) -> Result<()> {
    let (folder, threads) = blocked("blocked_calls.c", compiler, by, 40..=60)?;
    ensure!(threads == 4, "{threads}");
    let view = |name: &str| -> Result<String> {
        let mut view = report::unspool()?;
        view.arg("report").arg(folder.path().join("capture"));
        Ok(process::run(view.args(["--view", name]), LIMIT)?
            .success()?
            .text())
    };
    ensure!(view("timeline")?.contains(" blocked in poll()"));
    let waits = view("waits")?;
    ensure!(waits.contains("  recvfrom() of socket:["), "{waits}");
    Ok(())
}

/// Rust's primitives wait in futex calls, which they make by `syscall`, often by a jump to it. A
/// channel may need several for a message.
fn calls_of_rust(by: &[&str]) -> Result<()> {
    let (_, threads) = blocked("futexes.rs", RUST, by, 25..=150)?;
    ensure!(threads == 5, "{threads}");
    Ok(())
}

/// Compiles a program, and records it, run by a command if one is given. Returns the folder with
/// the recording `capture`, the program's output, and the report.
fn recorded(source: &str, by: &[&str], compiler: &[&str]) -> Result<(TempDir, String, Value)> {
    let (folder, file) = waiting::compile(source, compiler)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "-o"]);
    record.arg(&capture).arg("--").args(by).arg(file);
    let run = process::run(&mut record, LIMIT)?.success()?;
    let json = report::json(&capture, &[])?;
    Ok((folder, run.text(), json))
}

/// Records a program in a folder, run by a command if one is given, and compares the call of each
/// thread that says in which call it blocks. A thread does not block if its wake-up comes early, so
/// the counts are a range. Returns the number of these threads.
fn blocked(
    source: &str,
    compiler: &[&str],
    by: &[&str],
    counts: RangeInclusive<u64>,
) -> Result<(TempDir, usize)> {
    let (folder, text, json) = recorded(source, by, compiler)?;
    let others = json["processes"].as_array().into_iter().flatten();
    let owners = others.chain([&json]);
    let threads = owners.flat_map(|owner| owner["threads"].as_array().into_iter().flatten());
    let mut compared = 0;
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("blocked "))
    {
        let words: Vec<&str> = line.split(' ').collect();
        let &[tid, call, file] = &words[..] else {
            anyhow::bail!("{line}");
        };
        let tid: u64 = tid.parse()?;
        let thread = threads.clone().find(|thread| thread["tid"] == tid);
        let times = &thread.with_context(|| format!("no thread {tid}"))?["schedule"];
        let calls = times["system_calls"].as_array().context("system calls")?;
        let longest = &calls[0];
        // The C library's name and the kernel's: `recv` and `recvfrom`.
        let name = longest["call"].as_str().context(format!("{times:#}"))?;
        ensure!(name.contains(call), "{line}\n{times:#}");
        let expected = Some(file).filter(|file| !file.is_empty());
        ensure!(longest["file"].as_str() == expected, "{line}\n{times:#}");
        // The file is not known of waits that end before the recorder looks.
        let without_file = |one: &&Value| one["call"] == longest["call"] && one["file"].is_null();
        let further = calls[1..].iter().find(without_file);
        let sum = |key: &str| -> Option<u64> {
            let further = further.map_or(Some(0), |one| one[key].as_u64());
            Some(longest[key].as_u64()? + further?)
        };
        let count = sum("count").context("count")?;
        ensure!(counts.contains(&count), "{line}\n{times:#}");
        let blocked = sum("blocked_ns").context("a time")?;
        let all = times["blocked_ns"].as_u64().context("a time")?;
        ensure!(blocked * 10 >= all * 9, "{line}\n{times:#}");
        compared += 1;
    }
    Ok((folder, compared))
}

/// A program reads from pipes that have one descriptor number after the other, and prints how long
/// it waits for each. The report names no pipe for a longer time.
fn reused_descriptors() -> Result<()> {
    let (_, text, json) = recorded("reused_descriptor.c", &[], C)?;
    let times = &json["threads"][0]["schedule"];
    let calls = times["system_calls"].as_array().context("system calls")?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("waited "));
    let mut named = 0;
    for line in lines {
        let (ns, file) = line.split_once(' ').context(line.to_owned())?;
        let ns: u64 = ns.parse()?;
        let call = calls.iter().find(|call| call["file"] == file);
        let blocked_ns = call.map_or(Some(0), |call| call["blocked_ns"].as_u64());
        let blocked_ns = blocked_ns.context("blocked_ns")?;
        ensure!(blocked_ns <= ns, "{line}\n{times:#}");
        named += usize::from(call.is_some());
    }
    // Only a wait during which the recorder sees the descriptor has a name.
    ensure!(named >= 1, "{times:#}");
    Ok(())
}

/// The report names the thread that ends the waits of each thread, as the program prints it, and
/// none for waits that a timer or the end of the program ends. The critical path leads through the
/// pipe and the socket to the thread that computes.
fn wakers() -> Result<()> {
    let (folder, text, json) = recorded("relay.c", &[], C)?;
    let capture = folder.path().join("capture");
    let threads = json["threads"].as_array().context("threads")?;
    let thread = |tid: u64| {
        let thread = threads.iter().find(|thread| thread["tid"] == tid);
        thread.with_context(|| format!("no thread {tid}"))
    };
    let ns = |value: &Value| value.as_u64().context("a time");
    let mut compared = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("waits ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let &[tid, call, waker] = &words[..] else {
            anyhow::bail!("{line}");
        };
        let calls = &thread(tid.parse()?)?["schedule"]["system_calls"];
        let longest = &calls[0];
        let name = longest["call"].as_str().context(format!("{calls:#}"))?;
        ensure!(name.contains(call), "{line}\n{calls:#}");
        let woken_by = longest["woken_by"].as_array().context("woken_by")?;
        let by_threads = woken_by.iter().filter(|woken| woken["waker"] == "thread");
        let by_threads: Vec<&Value> = by_threads.collect();
        match waker.parse()? {
            0 => ensure!(by_threads.is_empty(), "{line}\n{calls:#}"),
            waker => {
                let [by] = by_threads[..] else {
                    anyhow::bail!("{line}\n{calls:#}");
                };
                ensure!(by["key"] == thread(waker)?["key"], "{line}\n{calls:#}");
                let (part, all) = (ns(&by["blocked_ns"])?, ns(&longest["blocked_ns"])?);
                ensure!(part * 10 >= all * 9, "{line}\n{calls:#}");
                // A thread does not block if its wake-up comes early. The file is not known of the
                // first waits.
                let count = by["count"].as_u64().context("count")?;
                ensure!((40..=90).contains(&count), "{line}\n{calls:#}");
            }
        }
        compared += 1;
    }
    ensure!(compared == 6, "{text}");
    let view = |arguments: &[&str]| -> Result<String> {
        let mut view = report::unspool()?;
        view.args(&arguments[..1])
            .arg(&capture)
            .args(&arguments[1..]);
        Ok(process::run(&mut view, LIMIT)?.success()?.text())
    };
    let waits = view(&["report", "--view", "waits"])?;
    for row in ["consume, woken by transform", "count, woken by consume"] {
        ensure!(waits.contains(row), "{waits}");
    }
    let first = &json["critical_path"]["groups"][0];
    ensure!(first["share"].as_f64() > Some(0.3), "{first:#}");
    let transform = threads.iter().find(|it| it["function"] == "transform");
    let transform = transform.context("the thread that computes")?;
    ensure!(first["key"] == transform["key"], "{first:#}");
    let critical = view(&["report", "--view", "critical"])?;
    for (waiter, call) in [
        ("consume", "recvfrom() of socket:["),
        ("produce", "write() of pipe:["),
    ] {
        let words = format!("{waiter} in {call}");
        ensure!(critical.contains(&words), "{critical}");
    }
    let graph = view(&["export", "--format", "dot", "--graph", "waits"])?;
    ensure!(graph.contains("recvfrom() of socket:["), "{graph}");
    Ok(())
}

/// If the kernel refuses perf events, one note names the setting to change, and the recording uses
/// the kernel's counters.
fn refused() -> Result<()> {
    let (folder, program) = waiting::compile_in("findings", "turns.c", C)?;
    let confined = folder.path().join("confined");
    let mut compiler = Command::new("gcc");
    compiler.arg(workspace::root().join("stub/tests/programs/confined.c"));
    process::run(compiler.arg("-o").arg(&confined), LIMIT)?.success()?;
    let capture = folder.path().join("capture");
    let mut record = Command::new(&confined);
    record.arg("refused").arg(workspace::unspool()?);
    record.args(["record", "-q", "--sync", "-o"]);
    process::run(record.arg(&capture).arg("--").arg(program), LIMIT)?.success()?;
    let json = report::json(&capture, &[])?;
    ensure!(json["recording"]["schedule"].is_null());
    let notes = json["notes"].as_array().context("notes")?;
    let says = |note: &&Value| {
        note.as_str()
            .is_some_and(|text| text.contains("perf_event"))
    };
    ensure!(notes.iter().filter(says).count() == 1, "{notes:#?}");
    let threads = json["threads"].as_array().context("threads")?;
    for thread in threads {
        ensure!(thread["schedule"].is_null(), "{thread:#}");
    }
    let counted = threads
        .iter()
        .filter(|thread| thread["times"]["on_cpu_ns"].is_u64());
    ensure!(counted.count() >= 5, "{threads:#?}");
    Ok(())
}
