//! Tracepoints: every hit is recorded once, and the program's results are right; also with gdb.

use std::path::Path;
use std::process::Command;

use super::client::{Client, little_endian, unescape};
use super::gdb::{assert_order, gdb};
use super::programs::{address, build};
use super::server::Server;
use super::target::{self, PC, RETURNS_BY_STACK, SP, STUB};

/// Defines a tracepoint without conditions.
pub fn define(client: &mut Client, number: u32, at: u64, actions: &[&str]) {
    define_as(client, number, at, "", actions);
}

/// Like [`define`], with further options after the pass count.
pub fn define_as(client: &mut Client, number: u32, at: u64, words: &str, actions: &[&str]) {
    let more = if actions.is_empty() { "" } else { "-" };
    let definition = format!("QTDP:{number:x}:{at:x}:E:0:0{words}{more}");
    assert_eq!(client.ask(&definition), "OK");
    for (index, action) in actions.iter().enumerate() {
        let more = if index + 1 < actions.len() { "-" } else { "" };
        let packet = format!("QTDP:-{number:x}:{at:x}:{action}{more}");
        assert_eq!(client.ask(&packet), "OK");
    }
}

/// A field of `qTStatus`.
pub fn status(client: &mut Client, name: &str) -> u64 {
    let text = client.ask("qTStatus");
    let field = text
        .split(';')
        .find_map(|field| field.strip_prefix(&format!("{name}:")));
    u64::from_str_radix(field.unwrap_or_else(|| panic!("no {name} in {text}")), 16).unwrap()
}

pub fn hits(client: &mut Client, number: u32, at: u64) -> u64 {
    let text = client.ask(&format!("qTP:{number:x}:{at:x}"));
    let (hits, _) = text
        .strip_prefix('V')
        .expect(&text)
        .split_once(':')
        .unwrap();
    u64::from_str_radix(hits, 16).unwrap()
}

/// Continues to the end, with this number of interrupts. No interrupt may lose a hit.
pub fn run_with_interrupts(client: &mut Client, exit: u64, interrupts: usize) {
    client.plant(exit);
    let mut stop = String::new();
    for _ in 0..interrupts {
        client.send(b"vCont;c");
        std::thread::sleep(std::time::Duration::from_millis(3));
        client.write(b"\x03");
        stop = client.text();
        if stop.contains("swbreak") {
            break;
        }
        assert!(stop.starts_with("T02"), "{stop}");
    }
    if !stop.contains("swbreak") {
        stop = client.go();
    }
    assert!(stop.contains("swbreak:;"), "{stop}");
}

#[test]
fn eight_threads_record_every_hit() {
    let program = build("hits", &["-no-pie"]);
    for interrupts in [0, 60] {
        let (mut server, mut client) = Server::run(&program, &["8", "1500"]);
        let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
        assert_eq!(client.ask("QTinit"), "OK");
        assert_eq!(client.ask("QTBuffer:size:1000000"), "OK");
        // A register and 32 bytes of the stack.
        define(&mut client, 1, hit, &[&format!("R1M{SP:x},0,20")]);
        assert_eq!(client.ask("QTStart"), "OK");
        run_with_interrupts(&mut client, end, interrupts);
        assert_eq!(hits(&mut client, 1, hit), 12_000);
        assert_eq!(status(&mut client, "tcreated"), 12_000);
        assert_eq!(client.ask("QTStop"), "OK");
        // The last frame has the program counter and the return address.
        assert_eq!(client.ask("QTFrame:2edf"), "F2edfT1");
        assert_eq!(client.register(PC), hit);
        let sp = client.register(SP);
        let stack = client.ask(&format!("m{sp:x},8"));
        assert_eq!(stack.len(), 16, "{stack}");
        if RETURNS_BY_STACK {
            assert!((0x40_0000..0x50_0000).contains(&little_endian(&stack)));
        }
        assert!(client.ask("m10,8").starts_with('E'));
        assert_eq!(client.ask("QTFrame:2ee0"), "F-1");
        assert_eq!(client.ask("QTFrame:ffffffff"), "OK");
        assert_eq!(client.register(PC), end);
        assert_eq!(client.ask("D"), "OK");
        assert!(server.wait().success());
        assert_eq!(server.output(), "total 12000\n");
    }
}

/// The addresses of all instructions of a function.
pub fn instructions(program: &Path, function: &str) -> Vec<u64> {
    let output = Command::new("objdump")
        .args([
            "-d",
            "--no-show-raw-insn",
            &format!("--disassemble={function}"),
        ])
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut addresses = Vec::new();
    for line in text.lines().filter(|line| line.contains(":\t")) {
        let (address, name) = line.split_once(":\t").unwrap();
        if !name.starts_with("nop") {
            addresses.push(u64::from_str_radix(address.trim(), 16).unwrap());
        }
    }
    addresses
}

/// Every instruction has the same effect under a trap.
#[test]
fn a_trap_on_every_instruction() {
    let program = build("classes", &["-no-pie"]);
    let expected = Command::new(&program).output().unwrap();
    let mut all = Vec::new();
    for function in ["add_up", "classes", "system_call", "work"] {
        all.extend(instructions(&program, function));
    }
    assert!(all.len() > 80, "{}", all.len());
    let (mut server, mut client) = Server::run(&program, &[]);
    let end = address(&program, "the_end");
    for (index, at) in all.iter().enumerate() {
        define(&mut client, index as u32 + 1, *at, &[]);
    }
    assert_eq!(client.ask("QTStart"), "OK");
    run_with_interrupts(&mut client, end, 20);
    let counts: Vec<u64> = (0..all.len())
        .map(|index| hits(&mut client, index as u32 + 1, all[index]))
        .collect();
    // Four threads call each function this number of times.
    for (function, calls) in [("add_up", 4), ("classes", 1), ("system_call", 1)] {
        let at = address(&program, function);
        let index = all.iter().position(|address| *address == at).unwrap();
        assert_eq!(counts[index], 4 * 200 * calls, "{function}");
    }
    assert!(
        counts.iter().filter(|count| **count > 0).count() > 70,
        "{counts:?}"
    );
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), String::from_utf8_lossy(&expected.stdout));
}

#[test]
fn signals_arrive_during_tracing() {
    let program = build("signals", &["-no-pie"]);
    let expected = Command::new(&program).arg("r").output().unwrap();
    let (mut server, mut client) = Server::run(&program, &["r"]);
    client.pass_all_signals();
    for (index, at) in instructions(&program, "main").iter().enumerate() {
        define(&mut client, index as u32 + 1, *at, &["R1"]);
    }
    assert_eq!(client.ask("QTStart"), "OK");
    let end = client.go();
    assert!(end.starts_with('W'), "{end}");
    drop(client);
    assert!(server.wait().success());
    assert_eq!(server.output(), String::from_utf8_lossy(&expected.stdout));
}

#[test]
fn full_and_circular_buffers_and_pass_counts() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    for (setting, created, frames, reason) in [
        ("QTBuffer:size:1000", 15, 15, "tfull:0"),
        ("QTBuffer:circular:1", 400, 15, "tnotrun:0"),
        ("", 10, 10, "tpasscount:1"),
    ] {
        let (mut server, mut client) = Server::run(&program, &["4", "100"]);
        assert_eq!(client.ask("QTBuffer:size:1000"), "OK");
        if !setting.is_empty() {
            assert_eq!(client.ask(setting), "OK");
        }
        let passes = if setting.is_empty() { "a" } else { "0" };
        // Each frame has 256 bytes of the stack, and 6 + 11 bytes of headers.
        assert_eq!(client.ask(&format!("QTDP:1:{hit:x}:E:0:{passes}-")), "OK");
        assert_eq!(client.ask(&format!("QTDP:-1:{hit:x}:M7,0,100")), "OK");
        assert_eq!(client.ask("QTStart"), "OK");
        run_with_interrupts(&mut client, end, 0);
        assert_eq!(status(&mut client, "tcreated"), created);
        assert_eq!(status(&mut client, "tframes"), frames);
        let text = client.ask("qTStatus");
        assert!(text.contains(reason), "{text}");
        assert!(client.go().starts_with("W00"));
        drop(client);
        server.wait();
        assert_eq!(server.output(), "total 400\n");
    }
}

#[test]
fn disconnected_tracing_goes_on() {
    let program = build("hits", &["-no-pie"]);
    let mut server = Server::start(&[
        "--multi",
        "--budget",
        "none",
        ":0",
        program.to_str().unwrap(),
        "4",
        "2000",
    ]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let mut client = Client::connect(server.port);
    assert_eq!(client.ask("QTDisconnected:1"), "OK");
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    define(&mut client, 7, hit, &["R1"]);
    let word = "main"
        .bytes()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    assert_eq!(
        client.ask(&format!("QTDPsrc:7:{hit:x}:at:0:4:{word}")),
        "OK"
    );
    assert_eq!(client.ask("QTStart"), "OK");
    client.plant(end);
    drop(client);
    let mut seen = 0;
    let mut client = loop {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut client = Client::connect(server.port);
        let now = hits(&mut client, 7, hit);
        assert!(now >= seen && client.ask("qTStatus").starts_with("T1;"));
        seen = now;
        assert_eq!(client.ask("qTfP"), format!("T7:{hit:x}:E:0:0"));
        assert_eq!(client.ask("qTsP"), format!("A7:{hit:x}:R1"));
        assert_eq!(client.ask("qTsP"), format!("Z7:{hit:x}:at:0:4:{word}"));
        assert_eq!(client.ask("qTsP"), "l");
        if seen == 8000 {
            break client;
        }
    };
    assert_eq!(client.ask("D"), "OK");
    drop(client);
    server.signal(15);
    server.wait();
    assert_eq!(server.output(), "total 8000\n");
}

/// The frames received, as (tracepoint, thread, blocks), and the threads reported before each
/// frame.
pub fn frames(client: &Client) -> Vec<(u16, i64, Vec<u32>)> {
    let mut known = Vec::new();
    let mut frames = Vec::new();
    for body in &client.notified {
        if let Some(threads) = body.strip_prefix(b"UnspoolThreads:") {
            let text = String::from_utf8_lossy(threads);
            let created = text.split(';').filter_map(|entry| entry.strip_prefix('c'));
            known.extend(created.map(|entry| {
                let (tid, _) = entry.split_once(',').unwrap();
                u32::from_str_radix(tid, 16).unwrap()
            }));
        }
        let Some(rest) = body.strip_prefix(b"UnspoolTrace:") else {
            continue;
        };
        let semicolon = rest.iter().position(|byte| *byte == b';').unwrap();
        let bytes = unescape(&rest[semicolon + 1..]);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let number = u16::from_le_bytes([rest[0], rest[1]]);
            let length = u32::from_le_bytes(*rest[2..].first_chunk().unwrap()) as usize;
            let blocks = &rest[6..6 + length];
            // A block has `V`, the number, and the value.
            assert_eq!((blocks[0], blocks.len()), (b'V', 13));
            let thread = i64::from_le_bytes(*blocks[5..].first_chunk().unwrap());
            frames.push((number, thread, known.clone()));
            rest = &rest[6 + length..];
        }
    }
    frames
}

#[test]
fn a_drained_buffer_loses_nothing_and_keeps_the_order() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["8", "1500"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    assert!(client.supported.contains("QUnspoolTrace+"));
    assert_eq!(client.ask("QUnspoolThreads:1"), "OK");
    assert_eq!(client.ask("QTinit"), "OK");
    // Far too small for all frames.
    assert_eq!(client.ask("QTBuffer:size:20000"), "OK");
    // trace_thread
    assert_eq!(client.ask("QTDV:5:0:0:74726163655f746872656164"), "OK");
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    define(&mut client, 1, hit, &["X4,2e000527"]);
    assert_eq!(client.ask("QTStart"), "OK");
    run_with_interrupts(&mut client, end, 0);
    let frames = frames(&client);
    assert_eq!(frames.len(), 12_000);
    for (number, thread, known) in &frames {
        assert_eq!(*number, 1);
        assert!(
            known.contains(&(*thread as u32)),
            "{thread} is not among {known:?}"
        );
    }
    // The client is woken once for many frames.
    assert!(client.notified.len() < 4000, "{}", client.notified.len());
    assert_eq!(status(&mut client, "tframes"), 0);
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 12000\n");
}

#[test]
fn a_full_drained_buffer_drops_and_counts() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["2", "500"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    assert_eq!(client.ask("QTBuffer:size:100"), "OK");
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    // More than the buffer holds.
    define(&mut client, 1, hit, &[&format!("M{SP:x},0,200")]);
    assert_eq!(client.ask("QTStart"), "OK");
    run_with_interrupts(&mut client, end, 0);
    assert!(client.ask("qTStatus").starts_with("T1;"));
    let last = client
        .notifications
        .iter()
        .rfind(|body| body.starts_with("UnspoolDropped"));
    assert_eq!(last.map(String::as_str), Some("UnspoolDropped:1,3e8"));
}

/// A tracepoint's expression can stop the thread.
#[test]
fn a_hit_that_stops() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["4", "300"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    // trace_stop, and a counter: the thread stops if the counter's lowest two bits are set.
    assert_eq!(client.ask("QTDV:5:0:0:74726163655f73746f70"), "OK");
    assert_eq!(client.ask("QTDV:6:0:0:63"), "OK");
    let code = "2c00062201022d00062203132d000529220127";
    // getv 6, 1, add, setv 6, 3, equal, setv 5, pop, 1, end
    let action = format!("X{:x},{code}", code.len() / 2);
    define(&mut client, 1, hit, &[&action]);
    assert_eq!(client.ask("QTStart"), "OK");
    client.plant(end);
    let stop = client.go();
    assert!(stop.contains("swbreak:;"), "{stop}");
    assert_eq!(client.register(PC), hit);
    let stop = client.go();
    assert!(stop.contains("swbreak:;"), "{stop}");
    assert_eq!(client.register(PC), end);
    assert_eq!(hits(&mut client, 1, hit), 1200);
    assert_eq!(status(&mut client, "tcreated"), 1199);
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 1200\n");
}

#[test]
fn malformed_packets_are_refused() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["1", "1"]);
    let hit = address(&program, "hit");
    define(&mut client, 1, hit, &[]);
    for packet in [
        "QTDP:",
        "QTDP:1",
        "QTDP:-9:1:R1",
        "QTDP:1:10:E:0:0:S",
        "QTDP:2:10:E:0:0:Xff,22",
        "QTDV:",
        "QTDV:1:1:0:zz",
        "QTEnable:9:9",
        "QTFrame:pc:",
        "QTFrame:what:1",
        "qTP:9:9",
        "QTNotes:user:z",
        "QTBuffer:size:x",
        "qTBuffer:1",
    ] {
        let answer = client.ask(packet);
        assert!(answer.starts_with('E'), "{packet}: {answer}");
    }
    let packet = format!("QTDP:-1:{hit:x}:SS1");
    assert!(client.ask(&packet).starts_with('E'));
    assert_eq!(client.ask("qTV:99"), "U");
    assert_eq!(client.ask("QTFrame:0"), "F-1");
    // The address is not mapped, so nothing can be planted.
    define(&mut client, 3, 0x10, &[]);
    assert!(client.ask("QTStart").starts_with('E'));
    assert!(client.ask("qTStatus").starts_with("T0;tnotrun:0"));
    assert!(client.go().starts_with("W00"));
}

/// Tests everything that gdb 13 does with tracepoints.
#[test]
fn gdb_traces() {
    let program = build("traced", &["-O0"]);
    let saved = target::scratch().join(format!("{}.tf", std::process::id()));
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {}\ntvariable $count = 0\ntvariable $trace_thread\n\
             trace work\nactions\ncollect $regs, $args, $locals, *(char(*)[256])$rsp\n\
             teval $count = $count + 1\ncollect $count, $trace_thread\nend\n\
             trace leaf if n > 4\nactions\ncollect n, global_point, counter\nend\n\
             break the_end\ntstart\ncontinue\ntstatus\ntstop\ntstatus\ninfo tracepoints\n\
             tfind 0\nbt\nprint n\nprint *what@5\nprint counter\nprint local\ntdump\n\
             tfind tracepoint 2\ntdump\nprint $trace_frame\ntfind none\ntsave {saved}\nkill\n\
             target tfile {saved}\ntfind 3\nprint n\n",
            program.display(),
            saved = saved.display(),
        ),
    );
    assert_order(
        &text,
        &[
            "Trace is running on the target.",
            "Collected 15 trace frames.",
            "Trace stopped by a tstop command",
            "already hit 10 times",
            "trace only if n > 4",
            "already hit 5 times",
            "Found trace frame 0, tracepoint 1",
            "#0  work (n=0, what=",
            "main () at",
            "$1 = 0",
            "\"hello\"",
            "<unavailable>",
            "Data collected at tracepoint 1, trace frame 0:",
            "$count = 1",
            "$trace_thread = ",
            "Found trace frame 10, tracepoint 2",
            "n = 5",
            "global_point = {x = 5, y = 4}",
            "= 10",
            "Found trace frame 3, tracepoint 1",
            "= 3",
        ],
    );
    let _ = std::fs::remove_file(saved);
}
