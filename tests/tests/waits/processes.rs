//! Tests waits for other processes: for objects that they hold, at pipes, and for their ends.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::inspection::{self, Inspection};
use unspool_tests::process::{self, Background};
use unspool_tests::waiting::{self, HERE, Waiting};

use super::BUILDS;

const LIMIT: Duration = Duration::from_secs(60);

/// Number of inspections of a program that only seems to be stuck.
const INSPECTIONS: usize = 40;

type Check = fn() -> Result<()>;

pub(super) fn trials() -> Vec<Trial> {
    let cases: &[(&str, Check)] = &[
        ("holder", holder),
        ("ended-holder", ended_holder),
        ("namespaces", namespaces),
        ("deadlock", || deadlock(false)),
        ("stopped-deadlock", || deadlock(true)),
        ("no-deadlock", no_deadlock),
        ("named", named),
        ("named-apart", named_apart),
        ("hang-of-an-awaited-one", hang_of_awaited),
        ("lock-copied-by-fork", copied_lock),
        ("same-memory", same_memory),
        ("same-memory-vfork", same_memory_vfork),
        ("named-objects", named_objects),
        ("file-locks", file_locks),
        ("workers", workers),
        ("by-name", by_name),
        ("pipes", || pipes(&[])),
        // A stop ends such a write early.
        ("large-write", || pipes(&["-DLARGE"])),
        ("own-pipe", own_pipe),
        ("own-pipe-of-a-handler", own_pipe_of_a_handler),
        ("pipes-of-others", || no_circle("-DOTHER")),
        ("pipes-of-a-timer", || no_circle("-DTICKS")),
        ("pipes-of-the-living", || no_circle("-DALIVE")),
    ];
    let trial = |(name, check): &(&str, Check)| {
        let check = *check;
        crate::trial(format!("waits::processes::{name}"), check)
    };
    cases.iter().map(trial).collect()
}

fn start(source: &str, options: &[&str]) -> Result<Waiting> {
    let (folder, file) = waiting::compile(source, &[BUILDS[0].1, options].concat())?;
    Waiting::start(&mut Command::new(file), folder)
}

/// The report shows what the holder in another process does.
fn holder() -> Result<()> {
    let waiting = start("shared.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let waits: Vec<_> = (seen.threads.iter())
        .filter_map(|thread| thread.wait.as_ref())
        .collect();
    let [wait] = waits[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(wait.shared, "{run}");
    let [process] = &seen.processes[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(wait.holders == [u64::from(process.pid)], "{run}");
    let threads = process.threads.iter().map(|thread| thread.tid);
    ensure!(threads.eq([u64::from(process.pid)]), "{run}");
    ensure!(
        process.program == "shared" && seen.findings.is_empty(),
        "{run}"
    );
    let run = inspection::inspect(&["--attach", &waiting.pid.to_string()], "text")?;
    let text = run.text().replace("\n  ", " ");
    let pid = process.pid;
    let expected = format!(
        "held by the main thread {pid} of process {pid} (shared), which is in the system call pause"
    );
    ensure!(text.contains(&expected), "{run}");
    ensure!(
        text.contains(&format!("process shared  pid {pid}")),
        "{run}"
    );
    Ok(())
}

/// Processes that wait for each other's locks of files are deadlocked.
fn file_locks() -> Result<()> {
    let (folder, file) = waiting::compile("file_locks.c", BUILDS[0].1)?;
    let locked = ["one", "two"].map(|name| folder.path().join(name));
    for path in &locked {
        fs::write(path, "")?;
    }
    let waiting = Waiting::start(Command::new(file).args(&locked), folder)?;
    let [expected] = &waiting.findings[..] else {
        anyhow::bail!("it states one finding");
    };
    let child = process::descendants(waiting.pid);
    wait_for_calls(&[&[waiting.pid][..], &child].concat(), &["73 "])?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let [found] = &seen.findings[..] else {
        anyhow::bail!("{run}");
    };
    let mut threads = found.threads.clone();
    threads.sort_unstable();
    ensure!(
        found.kind == "deadlock" && !found.proved && threads == expected.tids,
        "{run}"
    );
    Ok(())
}

/// A process in the same memory may end a wait, so that the wait is no lost wake-up. The report
/// on each names both.
fn same_memory() -> Result<()> {
    let waiting = start("same_memory.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let waits = seen.threads.iter().filter_map(|it| it.wait.as_ref());
    ensure!(seen.findings.is_empty() && waits.count() == 1, "{run}");
    let [child] = process::descendants(waiting.pid)[..] else {
        anyhow::bail!("it has one child");
    };
    let (first, last) = (waiting.pid.min(child), waiting.pid.max(child));
    for inspected in [first, last] {
        let run = inspection::inspect(&["--attach", &inspected.to_string()], "text")?;
        let text = run.text().split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = format!("Processes {first}, {last} share their memory, as");
        ensure!(text.matches(&expected).count() == 1, "{expected}: {run}");
    }
    Ok(())
}

/// A child of vfork(2) waits for a lock that a thread of its parent holds.
fn same_memory_vfork() -> Result<()> {
    let waiting = start("same_memory.c", &["-DVFORK"])?;
    wait_for_calls(&[waiting.pid], &["202 "])?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let waits = seen.threads.iter().filter_map(|it| it.wait.as_ref());
    let waits: Vec<_> = waits.collect();
    let expected = waiting.waits.values().find_map(|wait| wait.holder);
    let [wait] = waits[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(expected.is_some() && seen.findings.is_empty(), "{run}");
    ensure!(wait.holders == Vec::from_iter(expected), "{run}");
    let mut threads = seen.processes.iter().flat_map(|it| &it.threads);
    ensure!(threads.any(|thread| Some(thread.tid) == expected), "{run}");
    Ok(())
}

/// Objects outside the memory have names: semaphores, descriptors, and locks with their holders.
fn named_objects() -> Result<()> {
    let (folder, file) = waiting::compile("named_objects.c", BUILDS[0].1)?;
    let locked = folder.path().join("locked");
    fs::write(&locked, "")?;
    let waiting = Waiting::start(Command::new(file).arg(&locked), folder)?;
    // futex, read, flock, fcntl and wait4
    wait_for_calls(&[waiting.pid], &["202 ", "0 ", "73 ", "72 ", "61 "])?;
    let run = inspection::inspect(&["--attach", &waiting.pid.to_string()], "text")?;
    let text = run.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let [child] = process::descendants(waiting.pid)[..] else {
        anyhow::bail!("it has one child");
    };
    let locked = locked.display();
    let held = format!("for a lock of {locked}, held by process {child} (named_objects)");
    for expected in [
        format!("semaphore /dev/shm/sem.unspool-{}+0x0", waiting.pid),
        "in the system call read of eventfd ".to_owned(),
        format!("in the system call flock {held}"),
        format!("in the system call fcntl {held}"),
    ] {
        ensure!(text.contains(&expected), "{expected}: {run}");
    }
    let (_, run) = Inspection::attach(waiting.pid)?;
    for expected in ["\"syscall_file\": \"eventfd ", &locked.to_string()] {
        ensure!(run.text().contains(expected), "{expected}: {run}");
    }
    Ok(())
}

/// No process has the thread whose id the mutex stores.
fn ended_holder() -> Result<()> {
    let waiting = start("shared.c", &["-DENDS"])?;
    waiting.wait_until_blocked(HERE)?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let [found] = &seen.findings[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(
        found.kind == "abandoned-lock" && !found.proved && seen.processes.is_empty(),
        "{run}"
    );
    let holder = waiting.waits.values().find_map(|wait| wait.holder);
    let holder = holder.unwrap_or_default();
    let expected = format!("has stored the thread id {holder}");
    ensure!(found.text.contains(&expected), "{expected}: {run}");
    Ok(())
}

/// Two processes with the same id in different PID namespaces do not wait for themselves.
fn namespaces() -> Result<()> {
    let waiting = start("shared.c", &["-DNAMESPACES"])?;
    wait_for_calls(&[waiting.pid], &["202 "])?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let waits = seen.threads.iter().filter_map(|it| it.wait.as_ref());
    let waits: Vec<_> = waits.collect();
    let [wait] = waits[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(
        seen.findings.is_empty() && wait.shared && wait.holders.is_empty(),
        "{run}"
    );
    let unknown = wait.unknown.as_deref().unwrap_or_default();
    ensure!(unknown.contains("PID namespaces"), "{run}");
    Ok(())
}

/// Either process shows the deadlock of both, with the place of each mutex in their memory, also
/// while a signal has stopped both.
fn deadlock(is_stopped: bool) -> Result<()> {
    let waiting = start("across.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let [expected] = &waiting.findings[..] else {
        anyhow::bail!("it states one finding");
    };
    let child = process::descendants(waiting.pid);
    let pids = [&[waiting.pid][..], &child].concat();
    for pid in pids.iter().filter(|_| is_stopped) {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGSTOP)?;
        process::wait_until("the process is stopped", LIMIT, || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        })?;
    }
    for pid in pids {
        let (seen, run) = Inspection::attach(pid)?;
        let [found] = &seen.findings[..] else {
            anyhow::bail!("{run}");
        };
        let mut threads = found.threads.clone();
        threads.sort_unstable();
        ensure!(
            found.kind == "deadlock" && found.proved && threads == expected.tids,
            "{run}"
        );
        ensure!(found.text.contains("SIGSTOP") == is_stopped, "{run}");
        for place in ["/memfd:locks+0x0", "/memfd:locks+0x28"] {
            ensure!(found.text.contains(place), "{run}");
        }
        let others: Vec<u32> = seen.processes.iter().map(|process| process.pid).collect();
        ensure!(others.len() == 1 && others[0] != pid, "{run}");
    }
    Ok(())
}

/// The process that waits for a stuck child shows why the child is stuck.
fn hang_of_awaited() -> Result<()> {
    let waiting = start("forked.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let [expected] = &waiting.findings[..] else {
        anyhow::bail!("it states one finding");
    };
    let status = fs::read_to_string(format!("/proc/{}/status", waiting.pid))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let parent = parent.context("a parent")?.trim().parse()?;
    let (seen, run) = Inspection::attach(parent)?;
    let [found] = &seen.findings[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(
        found.kind == expected.kind && found.threads == expected.tids,
        "{run}"
    );
    Ok(())
}

/// A deadlock of two processes is proved if both are named, in each order, and nothing is followed.
fn named() -> Result<()> {
    let waiting = start("across.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let [expected] = &waiting.findings[..] else {
        anyhow::bail!("it states one finding");
    };
    let [child] = process::descendants(waiting.pid)[..] else {
        anyhow::bail!("one child");
    };
    for (first, second) in [(waiting.pid, child), (child, waiting.pid)] {
        let pids = format!("{first},{second},{first}");
        let options = ["--attach", &pids, "--no-follow"];
        let (seen, run) = Inspection::of(&options)?;
        let [found] = &seen.findings[..] else {
            anyhow::bail!("{run}");
        };
        let mut threads = found.threads.clone();
        threads.sort_unstable();
        ensure!(found.proved && threads == expected.tids, "{run}");
        ensure!(
            seen.threads[0].tid == u64::from(first)
                && seen.processes.len() == 1
                && seen.processes[0].pid == second,
            "{run}"
        );
        let run = inspection::inspect(&options, "text")?;
        let text = run.text();
        ensure!(text.starts_with("2 processes, 3 threads.\n"), "{run}");
        let heading = |pid| text.find(&format!("\nprocess across  pid {pid}\n"));
        ensure!(
            heading(first).is_some() && heading(first) < heading(second),
            "{run}"
        );
    }
    Ok(())
}

/// Each named process shows its own deadlock once, with the threads of that process.
fn named_apart() -> Result<()> {
    let both = [start("abba.c", &[])?, start("abba.c", &[])?];
    let mut expected = Vec::new();
    for waiting in &both {
        waiting.wait_until_blocked(HERE)?;
        expected.extend(waiting.findings.iter().map(|it| it.tids.clone()));
    }
    let pids = both.each_ref().map(|it| it.pid.to_string());
    let (seen, run) = Inspection::of(&["--attach", &pids[0], "--attach", &pids[1]])?;
    let mut found: Vec<Vec<u64>> = Vec::new();
    for finding in &seen.findings {
        ensure!(finding.kind == "deadlock" && finding.proved, "{run}");
        let mut threads = finding.threads.clone();
        threads.sort_unstable();
        found.push(threads);
    }
    found.sort_unstable();
    expected.sort_unstable();
    ensure!(found == expected, "{expected:?}: {run}");
    for (finding, pid) in seen.findings.iter().zip(&pids) {
        let process = format!("of process {pid} (abba)");
        ensure!(finding.text.contains(&process), "{process}: {run}");
    }
    Ok(())
}

/// A child's copy of a private lock is not held by the parent's thread, whose id it stores.
fn copied_lock() -> Result<()> {
    let waiting = start("forked.c", &[])?;
    waiting.wait_until_blocked(HERE)?;
    let child = waiting.pid;
    let stat = fs::read_to_string(format!("/proc/{child}/stat"))?;
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let parent = fields.split(' ').nth(1).context("the parent")?;
    for pids in [format!("{parent},{child}"), format!("{child},{parent}")] {
        let run = inspection::inspect(&["--attach", &pids], "text")?;
        let text = run.text();
        let words: Vec<&str> = text.split_whitespace().collect();
        let words = words.join(" ");
        ensure!(
            words.contains("Lock without an owner")
                && words.contains("which this process does not have")
                && !words.contains("held by thread hold"),
            "{run}"
        );
        ensure!(!words.contains(&format!("of process {parent}")), "{run}");
    }
    Ok(())
}

/// Processes with equal threads are shown once.
fn workers() -> Result<()> {
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "exec 3<&0; for i in 1 2 3; do read line <&3 & done; wait",
    ]);
    shell.stdin(Stdio::piped());
    let shell = Background(process::start(&mut shell)?);
    let pid = shell.0.id();
    let workers = || process::descendants(pid);
    process::wait_until("three workers", LIMIT, || workers().len() == 3)?;
    wait_for_calls(&workers(), &["0 "])?;
    let pids = [&[pid][..], &workers()].concat();
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let options = ["--attach", &pids.join(","), "--no-follow"];
    let run = inspection::inspect(&options, "text")?;
    let text = run.text();
    for words in [
        "4 processes, 4 threads.",
        "\n3 × process sh  pids ",
        "\n3 × main thread\n",
    ] {
        ensure!(text.contains(words), "{words}: {run}");
    }
    let (seen, run) = Inspection::of(&options)?;
    ensure!(seen.processes.len() == 3, "{run}");
    Ok(())
}

/// A glob names all processes with this program file, whose name is longer than the kernel's names.
fn by_name() -> Result<()> {
    let (folder, file) = waiting::compile("across.c", BUILDS[0].1)?;
    let name = format!("processes-by-name-{}", std::process::id());
    let program = folder.path().join(&name);
    fs::rename(file, &program)?;
    let waiting = Waiting::start(&mut Command::new(program), folder)?;
    waiting.wait_until_blocked(HERE)?;
    for glob in [name.as_str(), &name.replace("by-name", "b?-*")] {
        let (seen, run) = Inspection::of(&["--attach-name", glob, "--no-follow"])?;
        let pids = seen.processes.iter().map(|process| process.pid);
        ensure!(
            pids.eq(process::descendants(waiting.pid)) && seen.findings.len() == 1,
            "{run}"
        );
    }
    Ok(())
}

/// Locks that are taken in both orders, but never at the same time, are no deadlock.
fn no_deadlock() -> Result<()> {
    let waiting = start("across.c", &["-DGATE"])?;
    let (mut looks, mut together) = (0, 0);
    // The processes seldom wait for each other on a busy machine.
    while looks < INSPECTIONS || together <= INSPECTIONS / 4 {
        let (seen, run) = Inspection::attach(waiting.pid)?;
        ensure!(seen.findings.is_empty(), "{run}");
        together += usize::from(!seen.processes.is_empty());
        looks += 1;
        ensure!(looks < 10 * INSPECTIONS, "{together} of {looks}");
    }
    Ok(())
}

/// The report names the process at the other end of a pipe, and the child that is waited for. Each
/// process shows that all of them wait for each other.
fn pipes(options: &[&str]) -> Result<()> {
    let waiting = start("pipes.c", options)?;
    let parent = waiting.pid;
    let [child] = process::descendants(parent)[..] else {
        anyhow::bail!("one child");
    };
    wait_for_calls(&[parent, child], &["61 ", "0 ", "1 "])?;
    let pipe = |descriptor: i32| -> Result<String> {
        let link = fs::read_link(format!("/proc/{parent}/fd/{descriptor}"))?;
        Ok(link.to_string_lossy().into_owned())
    };
    let (full, empty) = (pipe(3)?, pipe(5)?);
    for (pid, states) in [
        (
            parent,
            vec![
                format!("in the system call wait4 for process {child} (pipes)"),
                format!(
                    "in the system call read of {empty}, which process {child} (pipes) can write"
                ),
            ],
        ),
        (
            child,
            vec![format!(
                "in the system call write of {full}, which process {parent} (pipes) can read"
            )],
        ),
    ] {
        let (seen, run) = Inspection::attach(pid)?;
        let found: Vec<_> = seen.findings.iter().map(|it| it.kind.as_str()).collect();
        ensure!(found == ["deadlock"], "{run}");
        let mut threads = seen.findings[0].threads.clone();
        threads.sort_unstable();
        let all = [parent, child].into_iter();
        let mut all: Vec<u64> = all
            .flat_map(|pid| process::calls(pid).into_keys())
            .collect();
        all.sort_unstable();
        ensure!(threads == all, "{run}");
        let run = inspection::inspect(&["--attach", &pid.to_string()], "text")?;
        let text = run.text().replace("\n  ", " ");
        for state in states {
            ensure!(text.contains(&state), "{state}: {run}");
        }
    }
    Ok(())
}

/// A thread reads from a pipe that only its own process can write.
fn own_pipe() -> Result<()> {
    let waiting = start("pipes.c", &["-DOWN"])?;
    wait_for_calls(&[waiting.pid], &["0 "])?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let [found] = &seen.findings[..] else {
        anyhow::bail!("{run}");
    };
    ensure!(
        found.kind == "self-deadlock" && found.threads == [u64::from(waiting.pid)],
        "{run}"
    );
    ensure!(found.text.contains("only this process can write"), "{run}");
    Ok(())
}

/// The same, but a signal handler may write to the pipe.
fn own_pipe_of_a_handler() -> Result<()> {
    let waiting = start("pipes.c", &["-DOWN", "-DHANDLER"])?;
    wait_for_calls(&[waiting.pid], &["0 "])?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    ensure!(seen.findings.is_empty(), "{run}");
    Ok(())
}

/// A sleeping thread, or a further process, may still read from the pipe.
fn no_circle(option: &str) -> Result<()> {
    let waiting = start("pipes.c", &[option])?;
    let children = process::descendants(waiting.pid);
    let writer = *children.last().context("a child")?;
    wait_for_calls(&[writer], &["1 "])?;
    for pid in [waiting.pid, writer] {
        let (seen, run) = Inspection::attach(pid)?;
        ensure!(seen.findings.is_empty(), "{run}");
    }
    Ok(())
}

/// Waits until all threads of the processes are in one of these system calls.
fn wait_for_calls(pids: &[u32], numbers: &[&str]) -> Result<()> {
    process::wait_until("all threads wait", LIMIT, || {
        let mut calls = pids
            .iter()
            .flat_map(|pid| process::calls(*pid).into_values());
        calls.all(|call| numbers.iter().any(|number| call.starts_with(number)))
    })
}
