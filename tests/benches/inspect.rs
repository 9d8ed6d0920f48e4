//! Measures one inspection of a thousand threads of sixteen frames: the time of `unspool inspect`,
//! `eu-stack`, and gdb with gdbserver, and how long the threads are stopped.
//!
//! `cargo bench -p unspool-tests --bench inspect` prints the tables in
//! docs/internals/performance.md.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use unspool_tests::crowd::{self, Crowd, min_median_max};
use unspool_tests::process::{self, Background};
use unspool_tests::wire::Wire;

const THREADS: usize = 1000;
/// `clone3`, `start_thread`, `work`, `descend`, and the wait: 16 frames.
const DEPTH: usize = 10;
const ROUNDS: usize = 5;
/// Bytes that `unspool inspect` requests of each stack.
const STACK: usize = 3 * 1024;

fn main() -> Result<()> {
    let (unspool, stub) = (crowd::release("unspool")?, crowd::release("unspool-stub")?);
    let crowd = Crowd::start(THREADS, DEPTH, 1, false)?;
    let pid = crowd.pid().to_string();
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    let mut used = [Vec::new(), Vec::new(), Vec::new()];
    let frames = |text: &str| text.matches("descend").count();
    // Unspool prints equal stacks once.
    let folded = |text: &str| {
        let all = text.contains(&format!("{THREADS} × work"));
        let deep = text.contains(&format!("descend × {DEPTH}"));
        if all && deep { THREADS * DEPTH } else { 0 }
    };
    for round in 0..=ROUNDS {
        for peer in 0..took.len() {
            let (start, before) = (Instant::now(), used_by_children()?);
            match peer {
                0 => look(
                    Command::new(&unspool).args(["inspect", "--attach", &pid]),
                    &folded,
                )?,
                1 => look(
                    Command::new("eu-stack").args(["-n", "0", "-p", &pid]),
                    &frames,
                )?,
                _ => gdb(&pid, &frames)?,
            }
            if round > 0 {
                took[peer].push(start.elapsed().as_secs_f64() * 1e3);
                used[peer].push(used_by_children()? - before);
            }
        }
    }
    let names = [
        "unspool inspect --attach",
        "eu-stack -p",
        "gdb through gdbserver",
    ];
    for (what, figures) in [("time", took), ("processor time", used)] {
        println!(
            "{what} for all stacks of {THREADS} threads with 16 frames, median of {ROUNDS} rounds"
        );
        println!("{:34} {:>10} {:>24}", "", "ms", "times unspool's");
        for (name, peer) in names.iter().zip(&figures) {
            let ratios = peer.iter().zip(&figures[0]).map(|(peer, ours)| peer / ours);
            let [least, middle, most] = min_median_max(ratios.collect());
            let [_, cost, _] = min_median_max(peer.clone());
            println!("{name:34} {cost:10.0} {middle:8.1}x ({least:.1}x to {most:.1}x)");
        }
        println!();
    }

    let mut stands = [Vec::new(), Vec::new()];
    for _ in 0..=ROUNDS {
        stands[1].push(bare(crowd.pid())?);
        let served = crowd::serve(&stub, &["--attach"], &[&pid])?;
        stands[0].push(observe(&served)?);
    }
    println!(
        "time for which an inspection stops each of {THREADS} threads, median of {} rounds",
        ROUNDS + 1
    );
    println!("{:34} {:>10} {:>24}", "", "us", "times the bare one");
    for (name, one) in [
        "qUnspoolStacks, 3 KiB of stack",
        "PTRACE_INTERRUPT, PTRACE_GETREGS",
    ]
    .iter()
    .zip(&stands)
    {
        let ratios = one.iter().zip(&stands[1]).map(|(one, bare)| one / bare);
        let [least, middle, most] = min_median_max(ratios.collect());
        let [_, cost, _] = min_median_max(one.clone());
        println!("{name:34} {cost:10.1} {middle:8.2}x ({least:.2}x to {most:.2}x)");
    }
    Ok(())
}

fn look(command: &mut Command, frames: &dyn Fn(&str) -> usize) -> Result<()> {
    let run = process::run(command, Duration::from_secs(300))?.success()?;
    let seen = frames(&run.text());
    // A peer that omits frames cannot be compared.
    ensure!(seen >= THREADS * DEPTH, "{seen} frames\n{run}");
    Ok(())
}

/// Processor time of ended children in milliseconds: fields 16 and 17 of `stat` (proc(5)), in
/// hundredths of a second.
fn used_by_children() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit_once(") ").context("a name")?.1;
    let fields: Vec<f64> = after
        .split(' ')
        .skip(13)
        .take(2)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok(fields.iter().sum::<f64>() * 10.0)
}

fn gdb(pid: &str, frames: &dyn Fn(&str) -> usize) -> Result<()> {
    let mut server = Command::new("gdbserver");
    server.args(["--once", "--attach", "127.0.0.1:0", pid]);
    server
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = Background(process::start(&mut server)?);
    let mut lines = BufReader::new(server.0.stderr.take().context("piped")?).lines();
    let port = loop {
        let line = lines.next().context("gdbserver ended")??;
        if let Some(port) = line.strip_prefix("Listening on port ") {
            break port.to_owned();
        }
    };
    std::thread::spawn(move || lines.count());
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-nx",
        "-batch",
        "-ex",
        "set pagination off",
        "-ex",
        "set debuginfod enabled off",
    ]);
    gdb.args([
        "-ex",
        "set sysroot /",
        "-ex",
        &format!("target remote 127.0.0.1:{port}"),
    ]);
    gdb.args(["-ex", "thread apply all bt", "-ex", "detach"]);
    look(&mut gdb, frames)?;
    // Wait for the server, so that its processor time is counted.
    server.0.wait()?;
    Ok(())
}

/// The minimum time to read a running thread, in microseconds for each thread.
fn bare(pid: u32) -> Result<f64> {
    let tids = crowd::tids(pid)?;
    for tid in &tids {
        ptrace::seize(*tid, ptrace::Options::empty())?;
    }
    let start = Instant::now();
    for tid in &tids {
        ptrace::interrupt(*tid)?;
        waitpid(*tid, Some(WaitPidFlag::__WALL))?;
        std::hint::black_box(ptrace::getregs(*tid)?);
        ptrace::cont(*tid, None)?;
    }
    let took = start.elapsed();
    for tid in &tids {
        ptrace::interrupt(*tid)?;
        waitpid(*tid, Some(WaitPidFlag::__WALL))?;
        ptrace::detach(*tid, None)?;
    }
    Ok(took.as_secs_f64() * 1e6 / tids.len() as f64)
}

/// Our look as the client sees it. Threads are stopped for a part of that time.
fn observe(served: &crowd::Served) -> Result<f64> {
    let mut client = Wire::observe(served.port())?;
    ensure!(client.ask("QUnspoolGo")? == "OK", "no client controls it");
    let list = client.ask("qfThreadInfo")?;
    let ids = list.strip_prefix('m').context("threads")?.split(',');
    let tids: Vec<&str> = ids.filter_map(|id| id.rsplit('.').next()).collect();
    ensure!(tids.len() > THREADS, "{} threads", tids.len());
    let mut left = &tids[..];
    let start = Instant::now();
    while !left.is_empty() {
        let asked = &left[..left.len().min(256)];
        let reply = client.ask_bytes(&format!("qUnspoolStacks:{STACK:x};{}", asked.join(";")))?;
        ensure!(reply.first() == Some(&b'b'), "no stacks");
        let bytes = unescape(&reply[1..]);
        let (mut at, mut count) = (0, 0);
        while at < bytes.len() {
            let word = |at: usize| {
                bytes
                    .get(at..at + 4)
                    .and_then(<[u8]>::first_chunk)
                    .map(|word| u32::from_le_bytes(*word) as usize)
            };
            let (registers, stack) = word(at + 4).zip(word(at + 8)).context("whole threads")?;
            ensure!(
                registers > 100 && stack > 500,
                "{registers} bytes of registers, {stack} of the stack"
            );
            (at, count) = (at + 12 + registers + stack, count + 1);
        }
        ensure!(count > 0, "no thread");
        left = &left[count..];
    }
    let took = start.elapsed();
    ensure!(client.ask("D")? == "OK", "D");
    Ok(took.as_secs_f64() * 1e6 / tids.len() as f64)
}

fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        plain.push(match byte {
            b'}' => rest.next().map_or(0, |escaped| escaped ^ 0x20),
            other => *other,
        });
    }
    plain
}
