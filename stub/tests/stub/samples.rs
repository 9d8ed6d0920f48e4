//! The kernel's CPU samples, compared with the counters and the maps in `/proc`.

use std::collections::HashMap;

use super::client::{Client, stopped, unescape};
use super::programs::{address, build};
use super::server::Server;
use super::target::{PC, POINTER, SP};

/// One sample, with the thread's whole stack.
#[derive(Debug)]
struct Sample {
    tid: u64,
    flags: u64,
    registers: Vec<u8>,
    sp: u64,
    stack: Vec<u8>,
}

/// Takes a number from the front.
fn number(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            return value;
        }
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length as usize);
    *bytes = rest;
    taken
}

/// All samples received so far. The kernel may lose none.
fn samples(client: &Client) -> Vec<Sample> {
    samples_of(client, false)
}

/// The same. A timer may miss some.
fn samples_of(client: &Client, by_timer: bool) -> Vec<Sample> {
    let bodies = client.notified.iter();
    let bodies = bodies.filter_map(|body| body.strip_prefix(b"UnspoolSamples:"));
    let mut former: HashMap<u64, (u64, Vec<u8>)> = HashMap::new();
    let mut all = Vec::new();
    for body in bodies {
        let start = body.iter().position(|byte| *byte == b';').unwrap() + 1;
        let bytes = unescape(&body[start..]);
        let mut rest = &bytes[..];
        while let Some((kind, after)) = rest.split_first() {
            rest = after;
            if *kind == 2 {
                former.clear();
                continue;
            }
            if *kind == 1 && by_timer {
                let _ = [(); 2].map(|()| number(&mut rest));
                continue;
            }
            assert_eq!(*kind, 0, "no sample is lost");
            let [_time, tid, _cpu, flags] = [(); 4].map(|()| number(&mut rest));
            let length = number(&mut rest);
            let registers = take(&mut rest, length).to_vec();
            let (sp, length) = (number(&mut rest), number(&mut rest));
            let (before, bytes) = former.remove(&tid).unwrap_or_default();
            let mut stack = Vec::new();
            while (stack.len() as u64) < length {
                let (same, other) = (number(&mut rest), number(&mut rest));
                if same > 0 {
                    let from = (sp + stack.len() as u64 - before) as usize;
                    stack.extend(&bytes[from..from + same as usize]);
                }
                stack.extend(take(&mut rest, other));
            }
            former.insert(tid, (sp, stack.clone()));
            all.push(Sample {
                tid,
                flags,
                registers,
                sp,
                stack,
            });
        }
    }
    all
}

/// The address ranges of a process with these access rights.
fn ranges(pid: u32, rights: &str) -> Vec<std::ops::Range<u64>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let lines = maps.lines().filter(|line| line.contains(rights));
    let range = |line: &str| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let address = |digits| u64::from_str_radix(digits, 16).ok();
        Some(address(start)?..address(end)?)
    };
    lines.filter_map(range).collect()
}

/// Begins the kernel's samples, which are of these modes.
fn begin(client: &mut Client, modes: &str) {
    let reply = client.ask("QUnspoolSamples:3e8,2000");
    let (seen, size) = reply.split_once(';').expect(&reply);
    assert_eq!(seen, modes);
    let size = u64::from_str_radix(size, 16).unwrap();
    assert!((1..=32 << 20).contains(&size), "{size}");
}

/// Samples a program whose second thread runs for 200 ms or more, and checks times and addresses.
/// The samples must have at least this part of the thread's processor time, in percent.
fn follow(
    mut server: Server,
    mut client: Client,
    program: &std::path::Path,
    begin: impl FnOnce(&mut Client),
    (by_timer, least): (bool, u64),
) {
    let (pid, _) = stopped(&client.ask("?"));
    begin(&mut client);
    client.plant(address(program, "ready"));
    assert!(client.go().contains("swbreak:;"));
    let all = samples_of(&client, by_timer);
    let worker = all.iter().map(|one| one.tid).find(|tid| *tid != pid.into());
    let worker = worker.expect("samples of a new thread");
    let file = format!("/proc/{pid}/task/{worker}/schedstat");
    let counted = std::fs::read_to_string(file).unwrap();
    let counted: u64 = counted.split(' ').next().unwrap().parse().unwrap();
    let theirs = all.iter().filter(|one| one.tid == worker);
    let sampled_ns = theirs.clone().count() as u64 * 1_000_000;
    assert!(
        sampled_ns * 100 >= counted * least && sampled_ns * 100 <= counted * 115,
        "{sampled_ns} {counted}"
    );
    let (code, data) = (ranges(pid, " r-xp "), ranges(pid, " rw-p "));
    for sample in theirs {
        // In the `g` packet, all registers up to the program counter have this size.
        let register = |number: u32| {
            let at = number as usize * POINTER;
            let mut value = [0; 8];
            value[..POINTER].copy_from_slice(&sample.registers[at..at + POINTER]);
            u64::from_le_bytes(value)
        };
        let within = |ranges: &[std::ops::Range<u64>], at: u64| {
            ranges.iter().any(|range| range.contains(&at))
        };
        assert_eq!(register(SP), sample.sp);
        assert!(within(&code, register(PC)), "{sample:?}");
        let last = sample.sp + sample.stack.len() as u64 - 1;
        assert!(within(&data, sample.sp) && within(&data, last));
        assert_eq!(sample.flags & 2 != 0, sample.stack.len() == 0x2000);
    }
    assert_eq!(client.ask("QUnspoolSamples:0"), "OK");
    let count = samples_of(&client, by_timer).len();
    assert!(client.go().starts_with("W00"));
    assert_eq!(samples_of(&client, by_timer).len(), count);
    drop(client);
    server.wait();
    assert_eq!(server.output(), "joined\n");
}

/// A thread that waits for another one is sampled when it blocks, with its stack.
#[test]
fn samples_of_blocking_threads() {
    let program = build("schedule", &["-no-pie"]);
    let mut server = Server::start(&["--once", ":0", program.to_str().unwrap()]);
    let mut client = Client::connect(server.port);
    let (pid, _) = stopped(&client.ask("?"));
    assert_eq!(client.ask("QUnspoolSamples:off-cpu;2000,3e8"), "E16");
    let reply = client.ask("QUnspoolSamples:1,2000");
    assert!(!reply.starts_with('E'), "{reply}");
    let reply = client.ask("QUnspoolSamples:off-cpu;2000,3e8");
    if !is_root() {
        assert!(reply.starts_with("E."), "{reply}");
        return;
    }
    let size = u64::from_str_radix(&reply, 16).unwrap();
    assert!((0x20000..=0x1000000).contains(&size), "{reply}");
    for request in ["2000", "7,1", "2000,0", "2000,1,1"] {
        let request = format!("QUnspoolSamples:off-cpu;{request}");
        assert_eq!(client.ask(&request), "E16");
    }
    client.plant(address(&program, "ready"));
    assert!(client.go().contains("swbreak:;"));
    let all = samples(&client);
    let of_thread = |is_main: bool| {
        let stopped = all.iter().filter(|one| one.flags & 4 != 0);
        stopped.filter(move |one| (one.tid == u64::from(pid)) == is_main)
    };
    assert!(of_thread(true).count() > 0, "{all:?}");
    // It sleeps 40 times.
    assert!(of_thread(false).count() >= 40, "{all:?}");
    let data = ranges(pid, " rw-p ");
    for sample in of_thread(true).chain(of_thread(false)) {
        assert!(
            data.iter().any(|range| range.contains(&sample.sp)),
            "{sample:?}"
        );
    }
    // A page of the stack that is not in memory is not copied.
    let copied = of_thread(false).filter(|one| !one.stack.is_empty());
    assert!(copied.count() >= 40, "{all:?}");
    assert_eq!(client.ask("QUnspoolSamples:0"), "OK");
    assert!(client.go().starts_with("W00"));
    drop(client);
    server.wait();
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t0"))
}

#[test]
fn samples_of_running_threads() {
    let program = build("schedule", &["-no-pie"]);
    let server = Server::start(&["--once", ":0", program.to_str().unwrap()]);
    let client = Client::connect(server.port);
    // The thread reads the clock most of the time, in the kernel.
    let (modes, least) = if is_root() {
        ("kernel", 85)
    } else {
        ("user", 1)
    };
    follow(
        server,
        client,
        &program,
        |client| begin(client, modes),
        (false, least),
    );
}

#[test]
fn samples_without_privilege() {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let modes = match paranoid.trim().parse::<i32>().unwrap() {
        ..=1 => "kernel",
        _ => "user",
    };
    let program = build("schedule", &["-no-pie"]);
    let confined = build("confined", &[]);
    let arguments = ["--once", ":0", program.to_str().unwrap()];
    let server = Server::start_through(&confined, &["unprivileged"], &arguments);
    let client = Client::connect(server.port);
    follow(
        server,
        client,
        &program,
        |client| begin(client, modes),
        (false, 1),
    );
}

/// Where the kernel refuses, the stub samples the thread by a timer.
#[test]
fn samples_by_a_timer() {
    let program = build("schedule", &["-no-pie"]);
    let confined = build("confined", &[]);
    // For 1.2 s, because beside other tests the stub may get no processor for a while.
    let arguments = ["--once", ":0", program.to_str().unwrap(), "240"];
    let server = Server::start_through(&confined, &["refused"], &arguments);
    let client = Client::connect(server.port);
    let begin =
        |client: &mut Client| assert_eq!(client.ask("QUnspoolSamples:timer;3e8,2000"), "OK");
    // The stub's timer competes with other tests for the processors.
    follow(server, client, &program, begin, (true, 25));
}

#[test]
fn refused_samples() {
    let program = build("schedule", &["-no-pie"]);
    let confined = build("confined", &[]);
    let arguments = ["--once", ":0", program.to_str().unwrap()];
    let mut server = Server::start_through(&confined, &["refused"], &arguments);
    let mut client = Client::connect(server.port);
    let reply = client.ask("QUnspoolSamples:c7,2000");
    assert!(
        reply.starts_with("E.") && reply.contains("perf_event_open"),
        "{reply}"
    );
    for request in [
        "",
        "1",
        "0,2000",
        "2711,2000",
        "c7,7",
        "c7,10000",
        "c7,2000,1",
        "off-cpu;2000,1",
        "timer;c7",
        "timer;0,2000",
    ] {
        assert_eq!(client.ask(&format!("QUnspoolSamples:{request}")), "E16");
    }
    assert_eq!(client.ask("QUnspoolSamples:0"), "OK");
    assert!(client.go().starts_with("W00"));
    assert!(samples(&client).is_empty());
    drop(client);
    server.wait();
}
