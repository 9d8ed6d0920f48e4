//! Fast tracepoints: they collect the same frames as traps, lose no hit, and leave nothing behind.

mod ends;
mod parts;

use std::path::Path;
use std::process::Command;

use super::client::{Client, field, little_endian};
use super::programs::{address, build};
use super::server::{Server, eventually, send_signal};
use super::spinning::Spinning;
use super::tracepoints::{define_as, hits, status};

/// Defines a fast tracepoint. `movable` is the number of bytes that may be moved in its function.
pub fn define(client: &mut Client, number: u32, at: u64, movable: usize, actions: &[&str]) {
    let words = format!(":F{movable:x}");
    define_as(client, number, at, &words, actions);
}

/// Length of a function's first instructions that a jump replaces, in bytes.
pub fn movable(program: &Path, function: &str) -> usize {
    let output = Command::new("objdump")
        .args(["-d", &format!("--disassemble={function}")])
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut length = 0;
    for line in text.lines().filter(|line| line.contains(":\t")) {
        length += line.split('\t').nth(1).unwrap().split_whitespace().count();
        if length >= 5 {
            break;
        }
    }
    length
}

/// Reads 8 bytes from `/proc/PID/mem`.
fn text(pid: u32, at: u64) -> [u8; 8] {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 8];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

fn run_to(client: &mut Client, end: u64) -> (u32, u32) {
    assert_eq!(client.ask(&format!("Z0,{end:x},1")), "OK");
    let stop = client.go();
    assert!(stop.contains("swbreak:;"), "{stop}");
    super::client::stopped(&stop)
}

#[test]
fn eight_threads_record_every_hit() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["8", "1500"]);
    assert!(client.supported.contains("FastTracepoints+"));
    assert_eq!(client.ask("qTMinFTPILen"), "5");
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    assert_eq!(client.ask("QTBuffer:size:1000000"), "OK");
    define(
        &mut client,
        1,
        hit,
        movable(&program, "hit"),
        &["R20M7,0,20"],
    );
    assert_eq!(client.ask("QTStart"), "OK");
    let (pid, _) = run_to(&mut client, end);
    assert_eq!(text(pid, hit)[0], 0xe9);
    assert_eq!(client.ask(&format!("m{hit:x},1")), format!("{:02x}", 0x48));
    assert_eq!(hits(&mut client, 1, hit), 12_000);
    assert_eq!(status(&mut client, "tcreated"), 12_000);
    assert_eq!(client.ask("QTStop"), "OK");
    assert_eq!(text(pid, hit)[0], 0x48);
    assert_eq!(client.ask("QTFrame:2edf"), "F2edfT1");
    assert_eq!(client.register(16), hit);
    let sp = client.register(7);
    let back = little_endian(&client.ask(&format!("m{sp:x},8")));
    assert!(back > 0x40_0000 && back < 0x50_0000, "{back:x}");
    assert!(client.ask("m10,8").starts_with('E'));
    assert_eq!(client.ask("QTFrame:ffffffff"), "OK");
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 12000\n");
}

/// The contents of a frame of tracepoint 1: registers, the stack, and the other three blocks.
fn frame(client: &mut Client, number: u64) -> (Vec<String>, String, Vec<String>) {
    assert_eq!(
        client.ask(&format!("QTFrame:{number:x}")),
        format!("F{number:x}T1")
    );
    let registers = (0..24).chain([57, 58, 59]);
    let registers = registers
        .map(|register| client.ask(&format!("p{register:x}")))
        .collect();
    let sp = client.register(7);
    let stack = client.ask(&format!("m{sp:x},10"));
    let variables = ["5", "6", "7"].map(|number| client.ask(&format!("qTV:{number}")));
    (registers, stack, variables.to_vec())
}

#[test]
fn frames_equal_those_of_a_trap() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let run = |movable: usize| {
        let (mut server, mut client) = Server::run(&program, &["1", "200"]);
        // trace_stack_left, trace_time, trace_cpu
        for (number, name) in [
            (5, "74726163655f737461636b5f6c656674"),
            (6, "74726163655f74696d65"),
            (7, "74726163655f637075"),
        ] {
            assert_eq!(client.ask(&format!("QTDV:{number}:0:0:{name}")), "OK");
        }
        // tracev 5, 6, 7; the stack up to its end, at most 4096 bytes.
        let code = "2e00052e00062e00072600072c00052310001520001d2310000c2100212c00050c27";
        let expression = format!("X{:x},{code}", code.len() / 2);
        let actions = ["R1ffff", "M7,0,10", &expression];
        if movable == 0 {
            super::tracepoints::define(&mut client, 1, hit, &actions);
        } else {
            define(&mut client, 1, hit, movable, &actions);
        }
        assert_eq!(client.ask("QTStart"), "OK");
        run_to(&mut client, end);
        let (hits, created) = (hits(&mut client, 1, hit), status(&mut client, "tcreated"));
        assert_eq!((hits, created), (200, 200));
        let usage = client.ask(&format!("qTP:1:{hit:x}"));
        let frames: Vec<_> = (0..200).map(|number| frame(&mut client, number)).collect();
        assert_eq!(client.ask("QTFrame:ffffffff"), "OK");
        assert_eq!(client.ask("D"), "OK");
        assert!(server.wait().success());
        (usage, frames)
    };
    let (trap, fast) = (run(0), run(movable(&program, "hit")));
    assert_eq!(trap.0, fast.0);
    let mut last = 0;
    for (trap, fast) in trap.1.into_iter().zip(fast.1) {
        assert_eq!(
            (&trap.0, &trap.1, &trap.2[0]),
            (&fast.0, &fast.1, &fast.2[0])
        );
        let time = u64::from_str_radix(&fast.2[1][1..], 16).unwrap();
        assert!(time > last, "{time} after {last}");
        last = time;
        let processor = u64::from_str_radix(&fast.2[2][1..], 16).unwrap();
        assert!(processor < 4096, "{processor}");
    }
}

/// At full speed, every hit of eight threads reaches a client that drains the buffer, in the order
/// of each thread.
#[test]
fn nothing_is_lost_when_the_buffer_is_drained() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["8", "100000"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    assert_eq!(client.ask("QUnspoolThreads:1"), "OK");
    assert_eq!(client.ask("QTBuffer:size:8000000"), "OK");
    assert_eq!(client.ask("QTDV:5:0:0:74726163655f746872656164"), "OK");
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    define(
        &mut client,
        1,
        hit,
        movable(&program, "hit"),
        &["X4,2e000527"],
    );
    assert_eq!(client.ask("QTStart"), "OK");
    run_to(&mut client, end);
    let mut counts = std::collections::BTreeMap::new();
    for (number, thread, _) in super::tracepoints::frames(&client) {
        assert_eq!(number, 1);
        *counts.entry(thread).or_insert(0) += 1;
    }
    assert_eq!(counts.values().copied().collect::<Vec<u32>>(), [100_000; 8]);
    assert_eq!(hits(&mut client, 1, hit), 800_000);
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 800000\n");
}

/// Resumes a program that gets signals.
fn set_going(client: &mut Client) {
    client.pass_all_signals();
    client.send(b"vCont;c");
    while !client.silent(30) {
        // A signal that arrived earlier.
        let stop = client.text();
        assert!(stop.starts_with('T'), "{stop}");
        let thread = field(&stop, "thread").expect("a thread");
        client.send(format!("vCont;C{}:{thread};c", &stop[1..3]).as_bytes());
    }
}

/// Signals to threads in collectors, hits in signal handlers, forks, short threads, unloading, and
/// all ways to detach.
#[test]
fn fast_tracepoints_survive_signals_forks_and_unloading() {
    let mut spinning = Spinning::start("sftu");
    let original = spinning.text();
    for round in 0..20 {
        let (mut server, mut client) = spinning.server();
        assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
        define(&mut client, 1, spinning.hit, 5, &["R1ffffM7,0,100"]);
        assert_eq!(client.ask("QTStart"), "OK");
        set_going(&mut client);
        match round % 4 {
            0 => drop(client),
            1 => {
                eventually("a hit", || {
                    client.write(b"\x03");
                    let stop = client.text();
                    assert!(stop.starts_with("T02"), "{stop}");
                    let is_hit = hits(&mut client, 1, spinning.hit) > 0;
                    if !is_hit {
                        client.send(b"vCont;c");
                    }
                    is_hit
                });
                assert_eq!(client.ask("D"), "OK");
            }
            2 => server.signal(15),
            _ => {
                for _ in 0..20 {
                    client.write(b"\x03");
                    let stop = client.text();
                    assert!(stop.starts_with("T02"), "{stop}");
                    client.send(b"vCont;c");
                }
                drop(client);
            }
        }
        server.wait();
        eventually("let go", || !spinning.traced());
        assert_eq!(spinning.ended(), None, "round {round}");
        assert_eq!(spinning.text(), original, "round {round}");
    }
    spinning.finish();
}

/// The jump stays in the text and no longer records anything.
#[test]
fn the_server_is_killed() {
    let mut spinning = Spinning::start("sft");
    for _ in 0..5 {
        let (mut server, mut client) = spinning.server();
        assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
        define(&mut client, 1, spinning.hit, 5, &["R1"]);
        assert_eq!(client.ask("QTStart"), "OK");
        client.send(b"vCont;c");
        std::thread::sleep(std::time::Duration::from_millis(20));
        send_signal(server.child.id(), 9);
        server.wait();
        eventually("let go", || !spinning.traced());
        assert_eq!(spinning.ended(), None);
    }
    spinning.finish();
}

/// Children have no jump, or their hits are not recorded. Threads of the parent lose no hit.
#[test]
fn forks_vforks_and_spawns() {
    let program = build("children", &["-no-pie"]);
    for (kinds, rounds, visits) in [
        ("f", 60, 60),
        ("v", 40, 120),
        ("s", 60, 60),
        ("fvs", 30, 90),
    ] {
        let (mut server, mut client) = Server::run(&program, &[kinds, &rounds.to_string()]);
        let visited = address(&program, "visited");
        assert_eq!(client.ask("QPassSignals:14"), "OK");
        define(
            &mut client,
            1,
            visited,
            movable(&program, "visited"),
            &["R1"],
        );
        assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
        assert_eq!(client.ask("QTStart"), "OK");
        let stop = client.go();
        assert!(stop.starts_with("W00"), "{kinds}: {stop}");
        let own = if kinds.contains('v') { 2 * rounds } else { 0 };
        assert_eq!(told(&client), visits - own, "{kinds}");
        drop(client);
        server.wait();
        assert_eq!(server.output(), format!("bad 0 visits {visits}\n"));
    }
}

/// Number of frames that a client has received.
fn told(client: &Client) -> usize {
    parts::blocks_of_frames(client).len()
}

#[test]
fn an_exec_removes_the_jump() {
    let program = build("exec", &["-no-pie"]);
    for _ in 0..5 {
        let (_server, mut client) = Server::run(&program, &[]);
        let change = address(&program, "change");
        define(&mut client, 1, change, movable(&program, "change"), &["R1"]);
        assert_eq!(client.ask("QTStart"), "OK");
        let stop = client.go();
        assert!(field(&stop, "exec").is_some(), "{stop}");
        let stop = client.go();
        assert!(stop.starts_with("W09"), "{stop}");
    }
}

/// Breakpoints at the jump or at the instructions that it displaces, and steps over it: a trap
/// replaces the jump meanwhile.
#[test]
fn beside_breakpoints_and_steps() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["4", "20000"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    define(&mut client, 1, hit, movable(&program, "hit"), &["R1"]);
    assert_eq!(client.ask("QTStart"), "OK");
    assert_eq!(client.ask(&format!("Z0,{end:x},1")), "OK");
    let back = hit + 4;
    let mut round = 0;
    // The program may end before all rounds are over.
    'rounds: while round < 40 {
        let at = if round % 2 == 0 { hit } else { back };
        assert_eq!(client.ask(&format!("Z0,{at:x},1")), "OK");
        for _ in 0..5 {
            let stop = client.go();
            assert!(stop.contains("swbreak:;"), "{stop}");
            if client.register(16) == end {
                break 'rounds;
            }
            let (pid, tid) = super::client::stopped(&stop);
            assert_eq!(client.register(16), at);
            assert_ne!(text(pid, hit)[0], 0xe9);
            if at == hit && round % 4 == 0 {
                let stop = client.ask(&format!("vCont;s:p{pid:x}.{tid:x}"));
                assert!(stop.starts_with("T05"), "{stop}");
                assert_eq!(client.register(16), back);
            }
        }
        assert_eq!(client.ask(&format!("z0,{at:x},1")), "OK");
        round += 1;
        client.send(b"vCont;c");
        client.write(b"\x03");
        let stop = client.text();
        if stop.contains("swbreak") {
            // A removed breakpoint stops no thread.
            assert_eq!(client.register(16), end);
            break;
        }
        assert!(stop.starts_with("T02"), "{stop}");
    }
    assert!(round >= 2, "{round} rounds");
    while client.register(16) != end {
        // An interrupt may have been pending.
        let stop = client.go();
        assert!(
            stop.contains("swbreak:;") || stop.starts_with("T02"),
            "{stop}"
        );
    }
    assert_eq!(hits(&mut client, 1, hit), 80_000);
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 80000\n");
}

/// Changes by an observer while the program runs take effect immediately, with a trap. A jump
/// follows later.
#[test]
fn tracepoints_are_changed_while_the_program_runs() {
    let spinning = Spinning::start("");
    let original = spinning.text();
    let mut server = spinning.server_with("none");
    let mut client = Client::observe(server.port);
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    assert_eq!(client.ask("QTStart"), "OK");
    assert_eq!(client.ask("QUnspoolGo"), "OK");
    let (hit, never) = (spinning.hit, spinning.never);
    let first = || (spinning.text()[0], spinning.text()[8]);
    for (number, at, fast) in [(1, hit, ":F5"), (2, never, "")] {
        let disabled = format!("QTDP:{number:x}:{at:x}:D:0:0{fast}-");
        assert_eq!(client.ask(&disabled), "OK");
        assert_eq!(client.ask(&format!("QTDP:-{number:x}:{at:x}:R1")), "OK");
    }
    assert_eq!(spinning.text(), original);
    let (enable, disable) = (
        format!("QTEnable:1:{hit:x}"),
        format!("QTDisable:1:{hit:x}"),
    );
    assert_eq!(client.ask(&format!("QTEnable:2:{never:x}")), "OK");
    for _ in 0..20 {
        assert_eq!(first(), (original[0], 0xcc));
        let before = hits(&mut client, 1, hit);
        assert_eq!(client.ask(&enable), "OK");
        assert!([0xcc, 0xe9].contains(&first().0), "{:?}", first());
        eventually("hits", || hits(&mut client, 1, hit) > before);
        assert_eq!(client.ask(&disable), "OK");
    }
    // Threads are inside the displaced instructions again and again.
    eventually("a jump", || {
        assert_eq!(client.ask(&disable), "OK");
        assert_eq!(first(), (original[0], 0xcc));
        assert_eq!(client.ask(&enable), "OK");
        std::thread::sleep(std::time::Duration::from_millis(100));
        first().0 == 0xe9
    });
    assert_eq!(client.ask("qUnspoolPlaces"), "1;2");
    let code = client.ask("qUnspoolCode");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", spinning.pid())).unwrap();
    let mapped = |code: &str| {
        let (start, _) = code.split_once(',').unwrap();
        let line_start = format!("{:08x}-", u64::from_str_radix(start, 16).unwrap());
        let is_it = |line: &&str| line.starts_with(&line_start) && line.contains("r-xp");
        maps.lines().any(|line| is_it(&line))
    };
    assert!(code.split(';').all(mapped), "{code} in {maps}");
    let before = hits(&mut client, 1, hit);
    eventually("hits", || hits(&mut client, 1, hit) > before + 1000);
    assert_eq!(hits(&mut client, 2, never), 0);
    // A new action applies from then on, both to jumps and to traps.
    assert_eq!(client.ask(&format!("QTDP:-1:{hit:x}:M7,0,10")), "OK");
    let before = hits(&mut client, 1, hit);
    eventually("hits", || hits(&mut client, 1, hit) > before + 1000);
    assert_eq!(client.ask("QTStop"), "OK");
    assert_eq!(spinning.text(), original);
    let last = status(&mut client, "tframes") - 1;
    assert_eq!(
        client.ask(&format!("QTFrame:{last:x}")),
        format!("F{last:x}T1")
    );
    let sp = client.register(7);
    assert_eq!(client.ask(&format!("m{sp:x},10")).len(), 0x20);
    assert_eq!(client.ask("QTFrame:ffffffff"), "OK");
    assert_eq!(client.ask("D"), "OK");
    drop(client);
    server.wait();
    spinning.finish();
}

/// The budget turns a collector off and on, and the stub counts the missed hits.
#[test]
fn within_the_budget() {
    let spinning = Spinning::start("");
    // If other processes use the processors, the stub's waiting time counts as cost, too. So one
    // good round of five is enough.
    let dearest = (0..5).map(|_| dearest_second(&spinning));
    let kept = dearest.filter(|dearest| *dearest < 12.0).take(1);
    assert_eq!(kept.count(), 1);
    spinning.finish();
}

/// The most expensive second of tracing with a budget of 5 %, in percent.
fn dearest_second(spinning: &Spinning) -> f64 {
    let mut server = spinning.server_with("5%");
    let mut client = Client::connect(server.port);
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    define(&mut client, 1, spinning.hit, 5, &["R1"]);
    assert_eq!(client.ask("QTStart"), "OK");
    client.send(b"vCont;c");
    std::thread::sleep(std::time::Duration::from_secs(2));
    client.write(b"\x03");
    assert!(client.text().starts_with("T02"));
    client.send(b"qRcmd,627564676574");
    let text = client.text();
    let text = String::from_utf8(super::client::unhex(&text[1..])).unwrap();
    assert_eq!(client.text(), "OK");
    assert!(
        text.contains("paused") && !text.contains("paused 0 times"),
        "{text}"
    );
    let dearest = text.split("most expensive second: ").nth(1).unwrap();
    let dearest = dearest.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(client.ask("D"), "OK");
    server.wait();
    dearest
}

/// gdb's `ftrace` command.
#[test]
fn gdb_traces() {
    let program = build("children", &["-no-pie"]);
    let visited = address(&program, "visited");
    let text = super::gdb::gdb(
        &program,
        &format!(
            "target remote | {} - {} s 30\nftrace *{visited:#x}\nactions\n\
             collect $regs, *(char(*)[64])$rsp\nend\ntstart\nbreak _exit\ncontinue\ntstatus\ntstop\n\
             info tracepoints\ntfind 29\nprint $rip\ntfind 30\nkill\n",
            env!("CARGO_BIN_EXE_unspool-stub"),
            program.display()
        ),
    );
    super::gdb::assert_order(
        &text,
        &[
            "Fast tracepoint 1 at",
            "bad 0 visits 30",
            "Collected 30 trace frames.",
            "fast tracepoint keep y",
            "already hit 30 times",
            "installed on target",
            "Found trace frame 29, tracepoint 1",
            "<visited>",
            "No trace frame found",
        ],
    );
}

/// An observer has fast tracepoints, too, beside a controlling client.
#[test]
fn for_an_observer() {
    let program = build("hits", &["-no-pie"]);
    let mut server = Server::start(&[
        "--budget",
        "none",
        ":0",
        program.to_str().unwrap(),
        "4",
        "20000",
    ]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let mut control = Client::connect(server.port);
    let mut observer = Client::observe(server.port);
    assert_eq!(observer.ask("QTDV:5:0:0:74726163655f746872656164"), "OK");
    assert_eq!(observer.ask("QTBuffer:size:4000000"), "OK");
    assert_eq!(observer.ask("QUnspoolTrace:1"), "OK");
    define(
        &mut observer,
        1,
        hit,
        movable(&program, "hit"),
        &["X4,2e000527"],
    );
    assert_eq!(observer.ask("QTStart"), "OK");
    run_to(&mut control, end);
    assert_eq!(hits(&mut observer, 1, hit), 80_000);
    // The stub sends frames as fast as the observer reads.
    while told(&observer) < 80_000 {
        observer.notification();
    }
    assert_eq!(told(&observer), 80_000);
    drop(observer);
    assert!(control.go().starts_with("W00"));
    drop(control);
    server.wait();
    assert_eq!(server.output(), "total 80000\n");
}
