//! Tests misleading and unknown data: libraries with other layouts, damaged and reused memory,
//! other processes' threads, locks without a recorded holder. Inspections from elsewhere must
//! agree.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::inspection::{self, Conditions, Inspection, Library};
use unspool_tests::process;
use unspool_tests::waiting::{self, HERE, Waiting};
use unspool_tests::workspace;

use super::{BUILDS, conditions};
use crate::inspect::serve;

const LIMIT: Duration = Duration::from_secs(60);

type Check = fn() -> Result<()>;

pub(super) fn trials() -> Vec<Trial> {
    let cases: &[(&str, Check)] = &[
        ("put-before-the-library", put_before_the_library),
        ("another-version", || {
            library_with(b"release version 2.36", b"release version 2.99")
        }),
        ("another-library", || {
            library_with(b"GNU C Library (", b"ANU C Library (")
        }),
        ("static-stripped", || {
            unnamed(Library::Glibc, GLIBC_STRIPPED)
        }),
        ("static-stripped-musl", || {
            unnamed(Library::Musl, &[MUSL_STRIPPED, &["-DROBUST"]].concat())
        }),
        ("static-stripped-unrecorded", || {
            let waiting = ring(MUSL_STRIPPED, |file| Command::new(file))?;
            says_unknown(&waiting, "mutex", "musl does not record")
        }),
        ("static-stripped-join-musl", unnamed_join),
        ("static-stripped-condition", unnamed_condition),
        ("static-stripped-exec", named_by_exec),
        ("damaged", damaged),
        ("stdio", stdio),
        ("arena", arena),
        ("pid-namespace", pid_namespace),
        ("stopped", stopped),
        ("stub-over-network", || {
            over_network("unspool-stub", "abba.c")
        }),
        ("stub-over-network-lost", || {
            over_network("unspool-stub", "lost.c")
        }),
        ("stub-over-network-kinds", || {
            over_network("unspool-stub", "kinds.c")
        }),
        ("gdbserver-over-network", || {
            over_network("gdbserver", "kinds.c")
        }),
    ];
    let trial = |(name, check): &(&str, Check)| {
        let check = *check;
        crate::trial(format!("waits::hostile::{name}"), check)
    };
    cases.iter().map(trial).collect()
}

/// A ring of threads that wait for each other, started in a special way.
fn ring(command: &[&str], start: impl FnOnce(&std::path::Path) -> Command) -> Result<Waiting> {
    let (folder, file) = waiting::compile("ring.c", command)?;
    let waiting = Waiting::start(&mut start(&file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    Ok(waiting)
}

/// Checks that the output states what is unknown, and that there are no findings.
fn says_unknown(waiting: &Waiting, kind: &str, why: &str) -> Result<()> {
    let (seen, run) = Inspection::attach(waiting.pid)?;
    for thread in seen
        .threads
        .iter()
        .filter(|thread| waiting.waits.contains_key(&thread.tid))
    {
        let wait = thread.wait.as_ref().with_context(|| run.to_string())?;
        ensure!(
            wait.kind == kind && wait.holders.is_empty() && !wait.proved,
            "{thread:x?}"
        );
        let said = wait.unknown.as_deref().unwrap_or_default();
        ensure!(said.contains(why), "{said:?} is not {why:?}");
    }
    ensure!(seen.findings.is_empty(), "{:?}", seen.findings);
    Ok(())
}

fn put_before_the_library() -> Result<()> {
    let (_folder, library) =
        waiting::compile("own_mutex.c", &["gcc", "-O1", "-g", "-shared", "-fPIC"])?;
    let waiting = ring(BUILDS[0].1, |file| {
        let mut command = Command::new(file);
        command.env("LD_PRELOAD", &library);
        command
    })?;
    says_unknown(&waiting, "mutex", "not to the C library")
}

/// The C library with some bytes changed, beside the program.
fn library_with(from: &[u8], to: &[u8]) -> Result<()> {
    let mut ldd = Command::new("ldconfig");
    ldd.arg("-p");
    let text = process::run(&mut ldd, Duration::from_secs(20))?
        .success()?
        .text();
    let path = text
        .lines()
        .find(|line| line.contains("libc.so.6 ") && line.contains("x86-64"))
        .and_then(|line| line.split(" => ").nth(1))
        .context("no libc.so.6")?;
    let mut bytes = fs::read(path)?;
    let at = bytes.windows(from.len()).position(|bytes| bytes == from);
    let at = at.context("the C library says nothing of the kind")?;
    bytes[at..at + to.len()].copy_from_slice(to);
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("libc.so.6"), bytes)?;
    let waiting = ring(BUILDS[0].1, |file| {
        let mut command = Command::new(file);
        command.env("LD_LIBRARY_PATH", folder.path());
        command
    })?;
    says_unknown(&waiting, "mutex", "layouts")
}

const GLIBC_STRIPPED: &[&str] = &["gcc", "-O2", "-s", "-static", "-pthread"];
const MUSL_STRIPPED: &[&str] = &["musl-gcc", "-O2", "-s", "-static", "-pthread"];

/// Without symbols, a mutex is recognized by its words, which also show its holder.
fn unnamed(library: Library, command: &[&str]) -> Result<()> {
    let waiting = ring(command, |file| Command::new(file))?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let conditions = Conditions {
        named: false,
        ..conditions(library, false)
    };
    seen.compare(&waiting, conditions)
        .with_context(|| run.to_string())
}

/// musl stores no holder of a normal mutex, but a join is known, so no wake-up is missed.
fn unnamed_join() -> Result<()> {
    let (folder, file) = waiting::compile("abba.c", MUSL_STRIPPED)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    let main = u64::from(waiting.pid);
    let (main, told) = (
        seen.threads.iter().find(|thread| thread.tid == main),
        &waiting.waits[&main],
    );
    let wait = main.and_then(|thread| thread.wait.as_ref());
    let wait = wait.with_context(|| run.to_string())?;
    let joined: Vec<u64> = told.holder.into_iter().collect();
    ensure!(
        wait.kind == "join" && wait.holders == joined,
        "{wait:x?}: {run}"
    );
    let kinds: Vec<&str> = seen.findings.iter().map(|one| &*one.kind).collect();
    ensure!(kinds == ["deadlock"], "{kinds:?}: {run}");
    Ok(())
}

/// Other objects store no thread id; the output says what would help.
fn unnamed_condition() -> Result<()> {
    let (folder, file) = waiting::compile("lost.c", GLIBC_STRIPPED)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    let (_, run) = Inspection::attach(waiting.pid)?;
    let text = run.text();
    ensure!(
        text.contains("could not be determined") && text.contains("--exec"),
        "{run}"
    );
    Ok(())
}

/// An unstripped copy provides names for frames whose code is the program's.
fn named_by_exec() -> Result<()> {
    for compiler in ["gcc", "musl-gcc"] {
        let mut unstripped = vec![compiler, "-O2", "-static", "-pthread"];
        // musl records the holder of these.
        unstripped.extend((compiler == "musl-gcc").then_some("-DROBUST"));
        let (_copies, copy) = waiting::compile("ring.c", &unstripped)?;
        let waiting = ring(&unstripped, |file| {
            let mut strip = Command::new("strip");
            process::run(strip.arg(file), LIMIT).expect("strip runs");
            Command::new(file)
        })?;
        let pid = waiting.pid.to_string();
        let copy = copy.to_str().context("text")?;
        let (seen, run) = Inspection::of(&["--attach", &pid, "--exec", copy])?;
        seen.compare(&waiting, conditions_of(compiler))
            .with_context(|| run.to_string())?;
        for name in ["dine", "pthread_mutex"] {
            ensure!(run.text().contains(name), "no {name}: {run}");
        }
        let run = inspection::inspect(&["--attach", &pid, "--exec", "/bin/true"], "text")?;
        ensure!(run.text().contains("--exec is not used"), "{run}");
    }
    Ok(())
}

fn conditions_of(compiler: &str) -> Conditions {
    match compiler {
        "gcc" => conditions(Library::Glibc, true),
        _ => conditions(Library::Musl, true),
    }
}

fn damaged() -> Result<()> {
    let (folder, file) = waiting::compile("damaged.c", BUILDS[0].1)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    for (tid, told) in &waiting.waits {
        let thread = seen.threads.iter().find(|thread| thread.tid == *tid);
        let wait = thread.and_then(|thread| thread.wait.as_ref());
        let wait = wait.with_context(|| format!("no wait of {tid}: {run}"))?;
        let holders: Vec<u64> = told.holder.into_iter().collect();
        ensure!(
            wait.kind == "mutex" && wait.holders == holders && wait.proved == told.holder.is_some(),
            "{tid}, told {told:x?}: {wait:x?}"
        );
        let said = wait.unknown.is_some() != told.holder.is_some();
        ensure!(said, "not said why: {wait:x?}");
    }
    // An id without a thread is a fact; what follows from it is a conclusion.
    let found = &seen.findings[..];
    let [one] = found else {
        anyhow::bail!("{found:?}\n{run}");
    };
    ensure!(one.kind == "abandoned-lock" && !one.proved, "{one:?}");
    Ok(())
}

fn stdio() -> Result<()> {
    for (_, command) in BUILDS {
        let (folder, file) = waiting::compile("stdio.c", command)?;
        let waiting = Waiting::start(&mut Command::new(file), folder)?;
        waiting.wait_until_blocked(HERE)?;
        let (seen, run) = Inspection::attach(waiting.pid)?;
        seen.compare(&waiting, conditions(Library::Glibc, false))
            .with_context(|| run.to_string())?;
    }
    Ok(())
}

fn arena() -> Result<()> {
    let (folder, file) = waiting::compile("arena.c", BUILDS[0].1)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    says_unknown(&waiting, "futex", "an internal lock of the C library, in")
}

/// Threads know each other by ids of another namespace.
fn pid_namespace() -> Result<()> {
    let (folder, file) = waiting::compile("abba.c", BUILDS[0].1)?;
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--kill-child"]).arg(file);
    let mut waiting = Waiting::start(&mut command, folder)?;
    let unshare = waiting.pid;
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"))?;
    waiting.pid = children.trim().parse().with_context(|| children.clone())?;
    waiting.seen_from_outside()?;
    waiting.wait_until_blocked(HERE)?;
    let (seen, run) = Inspection::attach(waiting.pid)?;
    seen.compare(&waiting, conditions(Library::Glibc, true))
        .with_context(|| run.to_string())
}

/// A signal has stopped the program. Its waits are reported, and it stays stopped.
fn stopped() -> Result<()> {
    for source in ["abba.c", "kinds.c"] {
        let (folder, file) = waiting::compile(source, BUILDS[0].1)?;
        let waiting = Waiting::start(&mut Command::new(file), folder)?;
        waiting.wait_until_blocked(HERE)?;
        let pid = waiting.pid;
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGSTOP)?;
        let stopped = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        process::wait_until("the program stops", LIMIT, stopped)?;
        let (seen, run) = Inspection::attach(pid)?;
        let conditions = Conditions {
            state: "stopped",
            ..conditions(Library::Glibc, true)
        };
        seen.compare(&waiting, conditions)
            .with_context(|| run.to_string())?;
        process::wait_until("it stays stopped", LIMIT, stopped)?;
    }
    Ok(())
}

fn over_network(server: &str, source: &str) -> Result<()> {
    let (folder, file) = waiting::compile(source, BUILDS[0].1)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    // A server halts a program to which it attaches, and an inspection leaves it halted.
    let server = match server {
        "unspool-stub" => workspace::stub()?,
        other => other.into(),
    };
    let (mut server, address) = serve(&server, waiting.pid)?;
    let (seen, run) = Inspection::of(&["--connect", &address])?;
    server.ends_well("the server", LIMIT)?;
    let conditions = Conditions {
        stands: true,
        ..conditions(Library::Glibc, true)
    };
    seen.compare(&waiting, conditions)
        .with_context(|| run.to_string())
}
