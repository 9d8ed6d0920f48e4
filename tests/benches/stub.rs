//! Measures the stub's resources: memory with a thousand threads and a full trace buffer, time to
//! read the program's memory, and processor time when idle. The peers are gdbserver and
//! lldb-server.
//!
//! `cargo bench -p unspool-tests --bench stub` prints the tables in docs/internals/performance.md.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use unspool_tests::process;
use unspool_tests::wire::Wire;
use unspool_tests::workspace;

use unspool_tests::crowd::{self, Crowd, Served, min_median_max};

const THREADS: usize = 1000;
const MEGABYTES: usize = 64;
const ROUNDS: usize = 5;
const IDLE: Duration = Duration::from_secs(3);

fn main() -> Result<()> {
    let servers = [
        crowd::stub_for_targets()?,
        "/usr/bin/gdbserver".into(),
        crowd::LLDB_SERVER.into(),
    ];
    let crowd = Crowd::start(THREADS, 10, MEGABYTES, true)?;
    let pid = crowd.pid().to_string();

    println!("{THREADS} threads; for the stub, a trace buffer of 1 MiB, full");
    println!(
        "{:34} {:>16} {:>16} {:>20}",
        "", "private, KB", "of that dirty, KB", "CPU in 3 s idle, us"
    );
    for server in &servers {
        let served = attach(server, &pid)?;
        let mut client = connect(&served)?;
        client.ask("qfThreadInfo")?;
        if server.ends_with("unspool-stub") {
            fill(&mut client, crowd.pid())?;
        }
        // Wait until it has printed everything.
        std::thread::sleep(Duration::from_millis(500));
        let (private, dirty) = memory(&served)?;
        let idle = idle(&served)?;
        println!("{:34} {private:16} {dirty:16} {idle:20}", name(server));
        client.ask(&format!("D;{:x}", crowd.pid()))?;
    }

    let mut rates = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (server, rates) in servers.iter().zip(&mut rates) {
            let served = attach(server, &pid)?;
            let mut client = connect(&served)?;
            let start = Instant::now();
            read(&mut client, crowd.memory, MEGABYTES << 20)?;
            rates.push(MEGABYTES as f64 / start.elapsed().as_secs_f64());
            client.ask(&format!("D;{:x}", crowd.pid()))?;
        }
    }
    println!(
        "\n{MEGABYTES} MiB of the program's memory over loopback by one client, median of {ROUNDS} rounds"
    );
    println!("{:34} {:>10} {:>24}", "", "MiB/s", "times gdbserver");
    for (server, one) in servers.iter().zip(&rates) {
        let ratios = one.iter().zip(&rates[1]).map(|(one, peer)| one / peer);
        let [least, middle, most] = min_median_max(ratios.collect());
        let [_, rate, _] = min_median_max(one.clone());
        println!(
            "{:34} {rate:10.0} {middle:8.1}x ({least:.1}x to {most:.1}x)",
            name(server)
        );
    }
    Ok(())
}

fn attach(server: &Path, pid: &str) -> Result<Served> {
    match server == Path::new(crowd::LLDB_SERVER) {
        true => crowd::serve_by_lldb(pid),
        false => crowd::serve(server, &["--attach"], &[pid]),
    }
}

fn name(server: &Path) -> String {
    server
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn connect(served: &Served) -> Result<Wire<TcpStream>> {
    let mut client = Wire::connect(served.port())?;
    client.ask("?")?;
    Ok(client)
}

/// Reads memory in the server's fastest way, in pieces as large as it accepts. Returns the number
/// of bytes.
fn read(client: &mut Wire<TcpStream>, start: u64, length: usize) -> Result<usize> {
    let features = client.ask("qSupported:multiprocess+")?;
    let size = features
        .split(';')
        .find_map(|feature| feature.strip_prefix("PacketSize="));
    let size = usize::from_str_radix(size.context("PacketSize")?, 16)?;
    let binary = features.contains("binary-upload+");
    let mut done = 0;
    while done < length {
        let piece = (length - done).min((size - 16) / 2);
        let letter = if binary { 'x' } else { 'm' };
        let reply = client.ask_bytes(&format!("{letter}{:x},{piece:x}", start + done as u64))?;
        let got = match binary {
            // An escape has two bytes, and `b` comes first.
            true => reply.len() - 1 - reply.iter().filter(|byte| **byte == b'}').count(),
            false => reply.len() / 2,
        };
        ensure!(got > 0 && got <= piece, "{got} of {piece} bytes");
        done += got;
    }
    Ok(done)
}

/// Fills the trace buffer with the hits of one thread.
fn fill(client: &mut Wire<TcpStream>, pid: u32) -> Result<()> {
    let program = workspace::target_directory().join("crowd");
    let nm = process::run(Command::new("nm").arg(&program), Duration::from_secs(60))?;
    let text = nm.text();
    let line = text
        .lines()
        .find(|line| line.ends_with(" tick"))
        .context("no tick")?;
    let offset = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16)?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let base = maps
        .lines()
        .find(|line| line.ends_with("/crowd"))
        .context("no map")?;
    let base = u64::from_str_radix(base.split('-').next().unwrap_or_default(), 16)?;
    let at = base + offset;
    // All registers, and the part of a short stack that `unspool record` collects.
    for packet in [
        "QTinit".to_owned(),
        "QTBuffer:size:100000".to_owned(),
        format!("QTDP:1:{at:x}:E:0:0-"),
        format!("QTDP:-1:{at:x}:R1M7,0,400"),
        "QTStart".to_owned(),
    ] {
        let answer = client.ask(&packet)?;
        ensure!(answer == "OK", "{packet}: {answer}");
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        client.send("vCont;c")?;
        std::thread::sleep(Duration::from_millis(300));
        client.interrupt()?;
        client.receive()?;
        let status = client.ask("qTStatus")?;
        if status.contains("tfull") {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the buffer does not fill: {status}"
        );
    }
}

/// Private memory, and the part that was written to, in KB.
fn memory(served: &Served) -> Result<(u64, u64)> {
    let (mut private, mut dirty) = (0, 0);
    for pid in processes(served) {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        dirty += field("Private_Dirty:");
        private += field("Private_Dirty:") + field("Private_Clean:");
    }
    Ok((private, dirty))
}

/// The server, and its tracing process if it has one.
fn processes(served: &Served) -> Vec<u32> {
    let pid = served.server.0.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let tracer = children.split_whitespace().filter_map(|child| {
        let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        child.parse().ok().filter(|_| name == "unspool-tracer\n")
    });
    std::iter::once(pid).chain(tracer).collect()
}

/// Processor time while nothing happens, in microseconds.
fn idle(served: &Served) -> Result<u64> {
    let spent = || -> Result<u64> {
        let mut nanoseconds = 0;
        for pid in processes(served) {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
            nanoseconds += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(nanoseconds / 1000)
    };
    let before = spent()?;
    std::thread::sleep(IDLE);
    Ok(spent()? - before)
}
