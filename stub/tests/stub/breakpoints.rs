//! Breakpoints with many threads: the stub reports every hit once, and the program's results are
//! right.

use std::collections::HashMap;

use super::client::{Client, stopped};
use super::packets::text;
use super::programs::{address, build};
use super::server::Server;
use super::target::{PC, SP};

/// Continues to the end with a breakpoint at `hit`. Returns the number of hits per thread, and the
/// exit.
fn count_hits(client: &mut Client, hit: u64) -> (HashMap<u32, u32>, String) {
    let mut hits = HashMap::new();
    loop {
        let stop = client.go();
        if !stop.starts_with('T') {
            return (hits, stop);
        }
        assert!(stop.starts_with("T05swbreak:;"), "{stop}");
        let (_, tid) = stopped(&stop);
        assert_eq!(client.register(PC), hit);
        *hits.entry(tid).or_default() += 1;
    }
}

#[test]
fn eight_threads_report_every_hit() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["8", "1500"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    let (hits, end) = count_hits(&mut client, hit);
    assert!(end.starts_with("W00"), "{end}");
    assert_eq!(hits.len(), 8);
    assert!(hits.values().all(|count| *count == 1500), "{hits:?}");
    drop(client);
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 12000\n");
}

/// Steps over a breakpoint as gdb does: remove it, step the thread, insert it, continue.
#[test]
fn a_breakpoint_is_removed_stepped_over_and_inserted() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["4", "400"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    let mut hits = 0;
    let mut stop = client.go();
    while stop.starts_with('T') {
        assert!(stop.starts_with("T05swbreak:;"), "{stop}");
        hits += 1;
        let (pid, tid) = stopped(&stop);
        client.lift(hit);
        let step = client.ask(&format!("vCont;s:p{pid:x}.{tid:x}"));
        assert!(
            step.starts_with("T05") && !step.contains("swbreak"),
            "{step}"
        );
        assert_eq!(stopped(&step).1, tid);
        client.plant(hit);
        stop = client.go();
    }
    assert!(stop.starts_with("W00"), "{stop}");
    assert_eq!(hits, 1600);
}

/// The stub drops hits that it has not reported yet when their breakpoint is removed.
#[test]
fn unreported_hits_are_dropped_with_their_breakpoint() {
    let program = build("hits", &["-no-pie"]);
    for _ in 0..10 {
        let (mut server, mut client) = Server::run(&program, &["8", "300"]);
        let hit = address(&program, "hit");
        client.plant(hit);
        for _ in 0..20 {
            assert!(client.go().contains("swbreak:;"));
        }
        client.lift(hit);
        let end = client.go();
        assert!(end.starts_with("W00"), "{end}");
        drop(client);
        server.wait();
        assert_eq!(server.output(), "total 2400\n");
    }
}

#[test]
fn two_hundred_threads_at_one_breakpoint() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["200", "20"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    let (hits, end) = count_hits(&mut client, hit);
    assert!(end.starts_with("W00"), "{end}");
    assert_eq!(hits.values().sum::<u32>(), 4000);
}

/// A breakpoint on the system call instruction itself. Stepping over it must not wait in the kernel
/// for a thread that is held.
#[test]
fn breakpoint_on_a_system_call() {
    let program = build("many", &["-static", "-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["8"]);
    let ready = address(&program, "ready");
    client.plant(ready);
    // Every `syscall` instruction in the functions that wait: eight threads wait at a barrier.
    let mut calls = Vec::new();
    for function in ["pthread_barrier_wait", "__futex_abstimed_wait_common"] {
        let start = address(&program, function);
        let code = super::client::unhex(&client.ask(&format!("m{start:x},200")));
        let found = code.windows(2).enumerate();
        calls.extend(
            found
                .filter(|(_, code)| *code == [0x0f, 0x05])
                .map(|(at, _)| start + at as u64),
        );
    }
    calls.sort_unstable();
    calls.dedup();
    assert!(!calls.is_empty());
    for call in &calls {
        client.plant(*call);
    }
    let (mut in_calls, mut in_ready) = (0, 0);
    loop {
        let stop = client.go();
        if !stop.starts_with('T') {
            assert!(stop.starts_with("W00"), "{stop}");
            break;
        }
        assert!(stop.contains("swbreak:;"), "{stop}");
        if client.register(PC) == ready {
            in_ready += 1;
        } else {
            in_calls += 1;
        }
    }
    assert!(in_calls > 0 && in_ready == 1, "{in_calls} {in_ready}");
    drop(client);
    server.wait();
    assert_eq!(server.output(), "all gone\n");
}

#[test]
fn nothing_stays_planted_after_detach() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["8", "3000"]);
    let hit = address(&program, "hit");
    let mut pid = stopped(&client.ask("?")).0;
    let own = text(pid, hit);
    client.plant(hit);
    for _ in 0..50 {
        pid = stopped(&client.go()).0;
    }
    assert_ne!(text(pid, hit), own);
    assert_eq!(client.ask(&format!("D;{pid:x}")), "OK");
    drop(client);
    if let Ok(memory) = std::fs::File::open(format!("/proc/{pid}/mem")) {
        use std::os::unix::fs::FileExt;
        let mut bytes = [0; 4];
        if memory.read_at(&mut bytes, hit).is_ok_and(|n| n == 4) {
            assert_eq!(bytes, own);
        }
    }
    server.wait();
    assert_eq!(server.output(), "total 24000\n");
}

/// A thread may be stopped between executing a trap and reporting it. At no time may the stub
/// report a removed breakpoint or leave a thread after its trap.
#[test]
fn breakpoints_are_planted_and_removed_while_threads_hit_them() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["6", "2000000000"]);
    let hit = address(&program, "hit");
    for round in 0..400 {
        client.plant(hit);
        let stop = client.go();
        assert!(stop.starts_with("T05swbreak:;"), "round {round}: {stop}");
        client.lift(hit);
        client.send(b"vCont;c");
        client.write(b"\x03");
        let stop = client.text();
        assert!(stop.starts_with("T02"), "round {round}: {stop}");
    }
    client.send(b"k");
}

/// The stub reports a breakpoint that is inserted at the stopped thread's address. gdb inserts one
/// there when it delivers a signal, so that it stops after the handler's return.
#[test]
fn a_breakpoint_is_planted_at_the_stopped_address() {
    let program = build("loop", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &[]);
    let pc = client.register(PC);
    client.plant(pc);
    let stop = client.go();
    assert!(stop.contains("swbreak:;"), "{stop}");
    assert_eq!(client.register(PC), pc);
    // Now the stub has reported it, so inserting it again changes nothing.
    client.plant(pc);
    let (pid, tid) = stopped(&stop);
    client.ask(&format!("vCont;s:p{pid:x}.{tid:x}"));
    assert_ne!(client.register(PC), pc);
    client.send(b"k");
    server.wait();
}

/// Instructions that the stub emulates at a breakpoint have the same effect as on the processor.
#[test]
fn instructions_have_the_same_effect_under_breakpoints() {
    let program = build("prologue", &["-no-pie"]);
    let (first, last) = (address(&program, "prologue"), address(&program, "last"));
    // Steps from `first` to `last` with breakpoints at `places`. Returns the state at each step.
    let walk = |places: &[u64]| {
        let (mut server, mut client) = Server::run(&program, &[]);
        client.plant(first);
        for place in places {
            client.plant(*place);
        }
        let (pid, tid) = stopped(&client.go());
        if places.is_empty() {
            client.lift(first);
        }
        let mut states = Vec::new();
        let mut pc = first;
        while pc != last {
            let stop = client.ask(&format!("vCont;s:p{pid:x}.{tid:x}"));
            assert_eq!(stopped(&stop).1, tid);
            pc = client.register(PC);
            let sp = client.register(SP);
            states.push((pc, client.ask("g"), client.ask(&format!("m{sp:x},40"))));
        }
        for place in places {
            client.lift(*place);
        }
        assert!(client.go().starts_with("W00"));
        drop(client);
        server.wait();
        assert_eq!(server.output(), "7\n");
        states
    };
    let without = walk(&[]);
    let places: Vec<u64> = without.iter().map(|(pc, ..)| *pc).collect();
    let over = walk(&places);
    assert_eq!(over.len(), 22);
    for (number, (over, without)) in over.iter().zip(&without).enumerate() {
        assert_eq!(over, without, "instruction {number}");
    }
}
