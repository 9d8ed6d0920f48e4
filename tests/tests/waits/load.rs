//! Tests Debian programs under load: there are no findings, each reported wait is one that the
//! kernel shows, and each holder is the one gdb reads.
//!
//! For every second inspection the program is stopped by a signal, so that the kernel, gdb and
//! Unspool refer to one moment. Each program is inspected for some seconds (UNSPOOL_LOAD_SECONDS).

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::inspection::{Inspection, Wait};
use unspool_tests::process::{self, Background};

/// Seconds for each program by default.
const SECONDS: u64 = 4;
/// Maximum number of inspections that are compared with gdb, which is slow.
const MAX_GDB_COMPARISONS: usize = 3;

/// The inspected program, and a script that starts it and keeps it busy in a temporary directory.
/// The script creates the file `busy` when the load starts.
const PROGRAMS: &[(&str, &str)] = &[
    ("mariadbd", MARIADB),
    ("redis-server", REDIS),
    ("memcached", MEMCACHED),
    (
        "pigz",
        ": > busy; while :; do head -c 300000000 /dev/zero | pigz -p 4 > /dev/null; done",
    ),
    (
        "xz",
        ": > busy; while :; do head -c 100000000 /dev/urandom | xz -T 4 -0 > /dev/null; done",
    ),
    (
        "zstd",
        ": > busy; while :; do head -c 900000000 /dev/urandom | zstd -q -T4 -3 > /dev/null; done",
    ),
    ("python3", PYTHON),
    ("vpxenc", VPXENC),
];

/// A database server, and eight clients that change the same rows.
const MARIADB: &str = "\
mariadb-install-db --no-defaults --user=$(id -un) --datadir=$PWD/data --auth-root-authentication-method=normal --skip-test-db > log 2>&1
mariadbd --no-defaults --user=$(id -un) --datadir=$PWD/data --socket=$PWD/socket --skip-networking --skip-name-resolve > log 2>&1 &
client() { mariadb --no-defaults -u root -S $PWD/socket \"$@\"; }
until client -e 'create database load_; create table load_.t (id int primary key, n int) engine=innodb' 2> /dev/null; do sleep 0.2; done
client load_ -e 'insert into t values (1,0),(2,0),(3,0),(4,0),(5,0)'
for n in 1 2 3 4 5 6 7 8; do
    : > busy
    yes 'update t set n = n + 1 where id = 1 + floor(rand() * 5); select sum(n) from t;' | client -f load_ > /dev/null &
done
wait";

/// A database server with threads for its clients.
const REDIS: &str = "\
redis-server --port 0 --unixsocket $PWD/socket --save '' --io-threads 4 --io-threads-do-reads yes > log &
until redis-cli -s socket ping > log 2>&1; do sleep 0.1; done
: > busy
while :; do redis-benchmark -q -s socket -c 40 -n 4000000 -t set,get > log; done";

/// A cache server, and eight clients.
const MEMCACHED: &str = "\
memcached -u $(id -un) -t 8 -s $PWD/socket &
until [ -S socket ]; do sleep 0.1; done
client='import socket
server = socket.socket(socket.AF_UNIX)
server.connect(\"socket\")
n = 0
while True:
    n += 1
    server.sendall(b\"set k%d 0 0 1000\\r\\n%s\\r\\nget k%d\\r\\n\" % (n % 999, b\"x\" * 1000, n % 99))
    server.recv(65536)
'
for n in 1 2 3 4 5 6 7 8; do : > busy; python3 -c \"$client\" & done
wait";

/// A video encoder.
const VPXENC: &str = "\
: > busy
while :; do
    head -c 80000000 /dev/urandom |
        vpxenc -q --codec=vp8 --i420 -w 640 -h 480 --threads=4 --rt --cpu-used=6 --token-parts=2 -o /dev/null -
done";

/// An interpreter: a queue between threads that take turns.
const PYTHON: &str = "\
: > busy
exec /usr/bin/python3 -S -c '
import queue, threading
jobs, done, lock = queue.Queue(4), queue.Queue(), threading.RLock()
def work():
    while True:
        n = jobs.get()
        with lock: done.put(n * n)
for n in range(4): threading.Thread(target=work, daemon=True).start()
n = 0
while True:
    jobs.put(n); n += 1
    if n > 4: done.get()
'";

pub(super) fn trials() -> Vec<Trial> {
    let trial = |(program, script): &'static (&str, &str)| {
        crate::trial(format!("waits::load::{program}"), || load(program, script))
    };
    PROGRAMS.iter().map(trial).collect()
}

/// The counts of a comparison.
#[derive(Debug, Default)]
struct Compared {
    looks: usize,
    /// Waits that both Unspool and the kernel report.
    waits: usize,
    /// Waits that only the kernel reports, of threads that are just leaving them.
    only_kernel: usize,
    /// Holders that gdb also reads.
    holders: usize,
    gdb_runs: usize,
}

impl Compared {
    /// Whether the comparison is meaningful. If threads take turns as fast as Python's, more than
    /// half may be leaving a wait.
    fn is_one(&self) -> bool {
        4 * self.waits >= self.only_kernel
    }

    /// The number of inspections: a few more if most threads were leaving waits in the first ones.
    fn wanted(&self) -> usize {
        if self.is_one() { 4 } else { 40 }
    }
}

fn load(program: &str, script: &str) -> Result<()> {
    let seconds = match std::env::var("UNSPOOL_LOAD_SECONDS") {
        Ok(text) => text.parse().context("UNSPOOL_LOAD_SECONDS")?,
        Err(_) => SECONDS,
    };
    let folder = tempfile::tempdir()?;
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut child = Background(process::start(&mut shell)?);
    let group = child.0.id();
    process::wait_until("the program has threads", Duration::from_secs(60), || {
        folder.path().join("busy").exists() && of_group(group, program).is_some()
    })?;
    let (start, mut compared) = (Instant::now(), Compared::default());
    while start.elapsed() < Duration::from_secs(seconds) || compared.looks < compared.wanted() {
        ensure!(child.0.try_wait()?.is_none(), "{program} has ended");
        let next = Instant::now() + Duration::from_secs(1).min(Duration::from_secs(seconds) / 8);
        // The program may end during the inspection and start again.
        if let Some(pid) = of_group(group, program) {
            let look = match compared.looks % 2 {
                0 => moving(pid),
                _ => standing(pid, &mut compared),
            };
            match look {
                Err(error) if of_group(group, program) == Some(pid) => return Err(error),
                _ => compared.looks += 1,
            }
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    if seconds != SECONDS {
        println!("{program}, {seconds} s: {compared:?}");
    }
    ensure!(compared.is_one(), "{compared:?}");
    Ok(())
}

fn moving(pid: u32) -> Result<()> {
    let (seen, run) = Inspection::attach(pid)?;
    ensure!(seen.findings.is_empty(), "{:?}\n{run}", seen.findings);
    Ok(())
}

/// Compares everything while the program is stopped.
fn standing(pid: u32, compared: &mut Compared) -> Result<()> {
    let process = Pid::from_raw(pid.cast_signed());
    kill(process, Signal::SIGSTOP)?;
    let result = stopped(pid, compared);
    kill(process, Signal::SIGCONT)?;
    result
}

fn stopped(pid: u32, compared: &mut Compared) -> Result<()> {
    let each = || {
        fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten()
    };
    process::wait_until("all threads stop", Duration::from_secs(10), || {
        each().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    })?;
    let calls = process::calls(pid);
    let (seen, run) = Inspection::attach(pid)?;
    ensure!(seen.findings.is_empty(), "{:?}\n{run}", seen.findings);
    let mut mutexes = BTreeMap::new();
    for thread in &seen.threads {
        let call = calls
            .get(&thread.tid)
            .with_context(|| format!("{thread:?}"))?;
        let word = futex(call);
        match (&thread.wait, word) {
            (Some(wait), Some(word)) => {
                // The thread waits at another word than the object's first, or at another object's
                // pointer to it.
                let inside = word.wrapping_sub(wait.address) < 64 || is_own_word(wait);
                ensure!(inside, "{thread:x?}, the kernel: {call}\n{run}");
                compared.waits += 1;
                if wait.kind == "mutex" && wait.flavor.is_empty() {
                    mutexes.insert(wait.address, wait.holders.clone());
                }
            }
            (Some(_), None) => anyhow::bail!("{thread:x?}, the kernel: {call}\n{run}"),
            (None, Some(_)) => compared.only_kernel += 1,
            (None, None) => {}
        }
    }
    mutexes.retain(|_, holders| !holders.is_empty());
    if !mutexes.is_empty() && compared.gdb_runs < MAX_GDB_COMPARISONS {
        compared.gdb_runs += 1;
        compared.holders += mutexes.len();
        let addresses: Vec<u64> = mutexes.keys().copied().collect();
        let owners = super::owners(pid, &addresses)?;
        let ours: Vec<u64> = mutexes.into_values().flatten().collect();
        ensure!(owners == ours, "gdb has {owners:?}, we {ours:?}\n{run}");
    }
    Ok(())
}

fn is_own_word(wait: &Wait) -> bool {
    ["join", "futex"].contains(&wait.kind.as_str())
}

/// The word at which a thread waits, from the kernel (proc(5), `/proc/PID/task/TID/syscall`).
/// x86-64's futex is 202; 219 continues an interrupted one with its arguments.
fn futex(call: &str) -> Option<u64> {
    let words: Vec<u64> = call
        .strip_prefix("202 ")
        .or(call.strip_prefix("219 "))?
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16))
        .collect::<Result<_, _>>()
        .ok()?;
    let [address, operation, ..] = words[..] else {
        return None;
    };
    // FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, private or not, with either clock.
    [0, 6, 9].contains(&(operation & 0x7f)).then_some(address)
}

/// The process with that name in a process group, once it has threads.
fn of_group(group: u32, name: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // pid (comm) state ppid pgrp: proc(5)
        let Some((head, rest)) = stat.rsplit_once(") ") else {
            return false;
        };
        let of_group = rest.split(' ').nth(2) == Some(&group.to_string());
        let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        of_group && head.ends_with(&format!("({name}")) && threads() > 1
    })
}
