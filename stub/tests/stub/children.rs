//! Forks, vforks, spawns and execs.

use std::time::Duration;

use super::client::{Client, field, stopped};
use super::programs::{address, build};
use super::server::Server;
use super::target::many;

fn run(kinds: &str, rounds: u32, visits: u32) {
    let program = build("children", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &[kinds, &rounds.to_string()]);
    let visited = address(&program, "visited");
    assert_eq!(client.ask("QPassSignals:14"), "OK");
    client.plant(visited);
    let mut hits = 0;
    loop {
        let stop = client.go();
        if !stop.starts_with('T') {
            assert!(stop.starts_with("W00"), "{kinds}: {stop}");
            break;
        }
        assert!(stop.contains("swbreak:;"), "{kinds}: {stop}");
        hits += 1;
    }
    // The stub does not report the children's hits. It reports every hit of the busy thread.
    assert_eq!(
        hits,
        visits - if kinds.contains('v') { 2 * rounds } else { 0 }
    );
    drop(client);
    server.wait();
    assert_eq!(server.output(), format!("bad 0 visits {visits}\n"));
}

#[test]
fn fork_under_a_planted_breakpoint() {
    run("f", 60, 60);
}

#[test]
fn vfork_under_a_planted_breakpoint() {
    run("v", 40, 120);
}

#[test]
fn spawn_under_a_planted_breakpoint() {
    run("s", 60, 60);
}

#[test]
fn forks_vforks_and_spawns_at_once() {
    run("fvs", 30, 90);
}

/// A child ends while the client sees its parent's stop, and the next resume resumes both. The next
/// report must be the child's end.
#[test]
fn an_end_during_another_stop_is_reported() {
    let program = build("family", &["-no-pie"]);
    let program = program.to_str().unwrap();
    for _ in 0..many(40) {
        let mut server = Server::start(&["--once", ":0", program, "vfork"]);
        let mut client = Client::connect_for(server.port, "vfork-events+");
        client.pass_all_signals();
        assert!(client.go().contains("vfork:p"));
        let mut told = [client.go(), client.go(), client.go()];
        told.sort();
        assert!(told[0].contains("vforkdone"), "{told:?}");
        assert!(told[1].starts_with("W00;process:"), "{told:?}");
        assert!(told[2].starts_with("W03;process:"), "{told:?}");
        drop(client);
        server.wait();
    }
}

/// A client that reads of new processes in its log gets no stops for them.
#[test]
fn processes_in_the_log_are_no_stops() {
    let program = build("family", &["-no-pie"]);
    let program = program.to_str().unwrap();
    for kind in ["fork", "vfork"] {
        let mut server = Server::start(&["--once", ":0", program, kind]);
        let mut client = Client::connect_for(server.port, "fork-events+;vfork-events+");
        client.pass_all_signals();
        assert_eq!(client.ask("QUnspoolThreads:1"), "OK");
        let stop = client.go();
        assert!(stop.starts_with("W00"), "{kind}: {stop}");
        let is_start = |entry: &str| entry.starts_with('p');
        while !client.told("UnspoolThreads").split(';').any(is_start) {}
        drop(client);
        server.wait();
    }
}

/// Forks of a free program stop nothing, although the client that has left wanted these stops.
#[test]
fn forks_after_a_detach_stop_nothing() {
    let program = build("children", &["-no-pie"]);
    let mut server = Server::start(&[":0", program.to_str().unwrap(), "fv", "300"]);
    let mut control = Client::connect_for(server.port, "fork-events+;vfork-events+");
    let mut observer = Client::observe(server.port);
    assert_eq!(observer.ask("QUnspoolThreads:1"), "OK");
    assert_eq!(control.ask("D"), "OK");
    drop(control);
    assert!(observer.told("UnspoolEnd").starts_with("W00"));
    drop(observer);
    assert!(server.wait().success());
}

#[test]
fn exec_from_another_thread() {
    for _ in 0..5 {
        let program = build("exec", &["-no-pie"]);
        let (_server, mut client) = Server::run(&program, &[]);
        let again = address(&program, "again");
        client.plant(again);
        let stop = client.go();
        let path = field(&stop, "exec").unwrap_or_else(|| panic!("{stop}"));
        let path = String::from_utf8(super::client::unhex(path)).unwrap();
        assert_eq!(path, program.to_str().unwrap());
        let (pid, tid) = stopped(&stop);
        assert_eq!(pid, tid);
        assert_eq!(client.threads(), [pid]);
        // The trap is gone with the memory.
        client.plant(again);
        assert!(client.go().contains("swbreak:;"));
        assert_eq!(client.go(), format!("W09;process:{pid:x}"));
    }
}

/// Resumes, and interrupts after a while. Now and then it does not interrupt, because on a busy
/// machine the interrupt may arrive before the program has executed any instruction.
fn go_for_a_while(client: &mut Client, round: u64) -> String {
    if round % 16 == 15 {
        return client.go();
    }
    client.send(b"vCont;c");
    std::thread::sleep(Duration::from_micros(round % 16 * 50));
    client.write(b"\x03");
    client.text()
}

/// Frequent interrupts: no hit is lost because a thread is interrupted just before a trap.
#[test]
fn frequent_interrupts_lose_no_hit() {
    let program = build("children", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["fvs", "40"]);
    assert_eq!(client.ask("QPassSignals:14"), "OK");
    let visited = address(&program, "visited");
    client.plant(visited);
    let (mut hits, mut interrupts) = (0, 0);
    for round in 0.. {
        let stop = go_for_a_while(&mut client, round);
        if stop.contains("swbreak:;") {
            hits += 1;
            // The interrupt may still be on its way to a halted program, and is reported later.
        } else if stop.starts_with("T02") {
            interrupts += 1;
        } else {
            assert!(stop.starts_with("W00"), "{stop}");
            break;
        }
    }
    assert_eq!(hits, 40, "{interrupts} interrupts");
    drop(client);
    server.wait();
    assert_eq!(server.output(), "bad 0 visits 120\n");
}

#[test]
fn exec_and_interrupts() {
    for _ in 0..10 {
        let program = build("exec", &["-no-pie"]);
        let (_server, mut client) = Server::run(&program, &[]);
        let mut execs = 0;
        for round in 0.. {
            let stop = go_for_a_while(&mut client, round);
            if stop.contains("exec:") {
                execs += 1;
            } else if !stop.starts_with("T02") {
                assert!(stop.starts_with("W09"), "{stop}");
                break;
            }
        }
        assert_eq!(execs, 1);
    }
}
