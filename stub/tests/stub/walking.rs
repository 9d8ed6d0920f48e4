//! Single steps after a hit (gdb's `while-stepping`): each instruction is recorded, and the
//! program's results are right.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use super::client::{Client, stopped, unhex};
use super::gdb::{assert_order, gdb};
use super::programs::{address, build};
use super::server::{Server, eventually, send_signal};
use super::target::{self, PC, STUB, is_emulated, many};
use super::tracepoints::{hits, instructions, status};

/// Defines variable 5 as the thread's id. The expression: tracev, end.
const THREAD: &str = "QTDV:5:0:0:74726163655f746872656164";
const NOTED: &str = "R1X4,2e000527";

/// Defines a tracepoint with this number of steps after each hit. It records general registers and
/// the thread.
fn define(client: &mut Client, number: u32, at: u64, steps: u32, passes: u32) {
    let definition = format!("QTDP:{number:x}:{at:x}:E:{steps:x}:{passes:x}-");
    for packet in [
        THREAD.to_owned(),
        definition,
        format!("QTDP:-{number:x}:{at:x}:{NOTED}-"),
        format!("QTDP:-{number:x}:{at:x}:SR1-"),
        // Actions after these belong to steps, too.
        format!("QTDP:-{number:x}:{at:x}:{}", &NOTED[2..]),
    ] {
        assert_eq!(client.ask(&packet), "OK", "{packet}");
    }
}

/// Thread and program counter of each frame.
fn frames(client: &mut Client) -> Vec<(u32, u64)> {
    let mut bytes = Vec::new();
    loop {
        let part = client.ask(&format!("qTBuffer:{:x},4000", bytes.len()));
        if part == "l" {
            break;
        }
        bytes.extend(unhex(&part));
    }
    let mut frames = Vec::new();
    let mut rest = &bytes[..];
    while rest.len() > 6 {
        let length = u32::from_le_bytes(rest[2..6].try_into().unwrap()) as usize;
        let (frame, after) = rest[6..].split_at(length);
        // `R` with registers, then `V` with number and value.
        let (registers, variable) = frame.split_at(length - 13);
        assert_eq!((registers[0], variable[0]), (b'R', b'V'));
        let thread = u32::from_le_bytes(variable[5..9].try_into().unwrap());
        frames.push((thread, target::register(&registers[1..], PC)));
        rest = after;
    }
    frames
}

/// The addresses through which one thread passes from `at` on, in this number of client steps.
fn way(program: &Path, arguments: &[&str], at: u64, steps: u32) -> Vec<u64> {
    let (_server, mut client) = Server::run(program, arguments);
    client.plant(at);
    let (pid, tid) = stopped(&client.go());
    let mut way = vec![at];
    for _ in 0..steps {
        let stop = client.ask(&format!("vCont;s:p{pid:x}.{tid:x}"));
        assert!(stop.starts_with("T05"), "{stop}");
        way.push(client.register(PC));
    }
    way
}

#[test]
fn eight_threads_record_every_step() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let way = way(&program, &["1", "10"], hit, 3);
    // Where the kernel cannot single-step, all threads are halted for each step.
    let rounds: u32 = if is_emulated() { 10 } else { 300 };
    let all = 8 * rounds as usize;
    for interrupts in [0, 30] {
        let (mut server, mut client) = Server::run(&program, &["8", &rounds.to_string()]);
        assert_eq!(client.ask("QTBuffer:size:2000000"), "OK");
        define(&mut client, 1, hit, 3, 0);
        assert_eq!(client.ask("QTStart"), "OK");
        super::tracepoints::run_with_interrupts(&mut client, end, interrupts);
        assert_eq!(hits(&mut client, 1, hit), all as u64);
        assert_eq!(client.ask("QTStop"), "OK");
        let mut of_threads: HashMap<u32, Vec<u64>> = HashMap::new();
        for (thread, pc) in frames(&mut client) {
            of_threads.entry(thread).or_default().push(pc);
        }
        assert_eq!(of_threads.len(), 8);
        for pcs in of_threads.values() {
            assert_eq!(*pcs, way.repeat(rounds as usize));
        }
        assert_eq!(client.ask("D"), "OK");
        assert!(server.wait().success());
        assert_eq!(server.output(), format!("total {all}\n"));
    }
}

/// Steps lead past other tracepoints, the same tracepoint again, and breakpoints.
#[test]
fn tracepoints_and_breakpoints_are_hit_during_steps() {
    let program = build("hits", &["-no-pie"]);
    let hit = address(&program, "hit");
    // More than one round of the loop.
    let steps = 30;
    let way = way(&program, &["1", "100"], hit, steps);
    let again = 1 + way[1..].iter().position(|pc| *pc == hit).unwrap();
    assert!(again > 4, "{way:x?}");
    let (_server, mut client) = Server::run(&program, &["1", "100"]);
    define(&mut client, 1, hit, steps, 0);
    define(&mut client, 2, way[2], 1, 0);
    client.plant(way[1]);
    assert_eq!(client.ask("QTStart"), "OK");
    for _ in 0..2 {
        assert!(client.go().contains("swbreak:;"));
        assert_eq!(client.register(PC), way[1]);
    }
    assert_eq!(client.ask("QTStop"), "OK");
    let pcs: Vec<u64> = frames(&mut client).iter().map(|frame| frame.1).collect();
    let mut expected = vec![hit, way[1], way[2], way[2], way[3], way[3]];
    expected.extend(&way[4..=again]);
    expected.extend([hit, way[1], way[1]]);
    assert_eq!(pcs, expected);
    // Nothing remains planted.
    client.lift(way[1]);
    assert!(client.go().starts_with("W00"));
}

#[test]
fn pass_counts_and_full_buffers() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    for (passes, size, reason, count) in [
        (2, "ffffff", "tpasscount:1", Some(8)),
        (0, "1000", "tfull:0", None),
    ] {
        let (mut server, mut client) = Server::run(&program, &["1", "500"]);
        define(&mut client, 1, hit, 3, passes);
        assert_eq!(client.ask(&format!("QTBuffer:size:{size}")), "OK");
        client.plant(end);
        assert_eq!(client.ask("QTStart"), "OK");
        assert!(client.go().contains("swbreak:;"));
        let text = client.ask("qTStatus");
        assert!(text.starts_with(&format!("T0;{reason};")), "{text}");
        let frames = frames(&mut client).len();
        assert!(count.is_none_or(|count| frames == count), "{frames}");
        assert_eq!(status(&mut client, "tcreated"), frames as u64);
        assert_eq!(client.ask("D"), "OK");
        server.wait();
        assert_eq!(server.output(), "total 500\n");
    }
}

/// The program behaves the same, whatever instructions the steps execute.
#[test]
fn steps_from_every_instruction() {
    let program = build("classes", &["-no-pie"]);
    let expected = Command::new(&program).output().unwrap();
    let all: Vec<u64> = ["add_up", "classes", "system_call", "work"]
        .into_iter()
        .flat_map(|function| instructions(&program, function))
        .collect();
    let (mut server, mut client) = Server::run(&program, &[]);
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    for (index, at) in all.iter().enumerate() {
        define(&mut client, index as u32 + 1, *at, 2, 0);
    }
    assert_eq!(client.ask("QTStart"), "OK");
    let end = address(&program, "the_end");
    super::tracepoints::run_with_interrupts(&mut client, end, 10);
    for (function, calls) in [("add_up", 4), ("classes", 1), ("system_call", 1)] {
        let at = address(&program, function);
        let number = all.iter().position(|address| *address == at).unwrap() as u32 + 1;
        assert_eq!(hits(&mut client, number, at), 4 * 200 * calls, "{function}");
    }
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), String::from_utf8_lossy(&expected.stdout));
}

/// Steps from the program's beginning to its end, or for a while where steps are slow. Threads and
/// processes are created meanwhile, and signals arrive and are handled.
#[test]
fn very_long_series_of_steps() {
    let steps = if is_emulated() { 400 } else { 1_000_000_000 };
    for (name, arguments) in [
        ("hits", &["4", "10"][..]),
        ("family", &["fork"]),
        ("family", &["vfork"]),
        ("signals", &["r", "t"]),
        ("exec", &[]),
    ] {
        let program = build(name, &["-no-pie"]);
        let expected = Command::new(&program).args(arguments).output().unwrap();
        let (mut server, mut client) = Server::run(&program, arguments);
        client.pass_all_signals();
        assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
        define(&mut client, 1, address(&program, "main"), steps, 0);
        if name == "hits" {
            define(&mut client, 2, address(&program, "hit"), steps, 0);
        }
        assert_eq!(client.ask("QTStart"), "OK");
        let mut end = client.go();
        if end.starts_with("T05exec:") {
            end = client.go();
        }
        let code = expected.status.code().unwrap();
        assert!(end.starts_with(&format!("W{code:02x}")), "{name}: {end}");
        drop(client);
        server.wait();
        assert_eq!(
            server.output(),
            String::from_utf8_lossy(&expected.stdout),
            "{name}"
        );
    }
}

/// The client ends the trace, leaves, or kills the program in the middle of a series of steps.
#[test]
fn a_trace_is_ended_during_steps() {
    let program = build("hits", &["-no-pie"]);
    let hit = address(&program, "hit");
    let rounds = many(20_000);
    for what in ["QTStop", "D", "k"] {
        let (mut server, mut client) = Server::run(&program, &["4", &rounds.to_string()]);
        assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
        define(&mut client, 1, hit, 1_000_000_000, 0);
        assert_eq!(client.ask("QTStart"), "OK");
        while status(&mut client, "tcreated") < 10 {
            client.send(b"vCont;c");
            std::thread::sleep(std::time::Duration::from_millis(20));
            client.write(b"\x03");
            let stop = client.text();
            assert!(stop.starts_with("T02"), "{stop}");
        }
        let mut expected = format!("total {}\n", 4 * rounds);
        match what {
            "k" => {
                client.send(b"k");
                expected.clear();
            }
            "D" => assert_eq!(client.ask("D"), "OK"),
            _ => {
                assert_eq!(client.ask("QTStop"), "OK");
                assert!(client.go().starts_with("W00"));
            }
        }
        drop(client);
        server.wait();
        assert_eq!(server.output(), expected, "{what}");
    }
}

/// A thread blocks in the kernel during its steps, and the server is killed.
#[test]
fn the_server_is_killed() {
    let program = build("asleep", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &[]);
    let (pid, _) = stopped(&client.ask("?"));
    define(&mut client, 1, address(&program, "hit"), 1_000_000_000, 0);
    assert_eq!(client.ask("QTStart"), "OK");
    client.send(b"vCont;c");
    eventually("it waits", || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        text.contains(") S ")
    });
    send_signal(server.tracer(), 9);
    server.wait();
    eventually("it is let go", || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        text.contains("TracerPid:\t0\n")
    });
    send_signal(pid, 10);
    assert_eq!(server.output(), "woken\n");
}

/// For a frame of a step, gdb shows the values that step actions collected.
#[test]
fn gdb_tells_steps_from_hits() {
    let program = build("hits", &["-O0"]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} 1 30\nbreak main\ncontinue\ntrace *hit\nactions\ncollect rounds\n\
             while-stepping 3\ncollect $regs\nend\nend\nbreak the_end\ntstart\ncontinue\ntstop\ntstatus\n\
             tfind start\ntdump\ntfind\ntdump\ntfind 4\ntdump\ntfind 78\ntfind none\n\
             maint packet qTfP\nmaint packet qTsP\nmaint packet qTsP\nkill\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "Collected 120 trace frames",
            "Found trace frame 0, tracepoint 2",
            "Data collected at tracepoint 2, trace frame 0:",
            "rounds = 30",
            "Found trace frame 1, tracepoint 2",
            "Data collected at tracepoint 2, trace frame 1:",
            "rip ",
            "Found trace frame 4, tracepoint 2",
            "rounds = 30",
            "Found trace frame 78, tracepoint 2",
            ":E:3:0",
            "received: \"A2:",
            "received: \"S2:",
        ],
    );
}
