//! The server is killed, and the program must not be disturbed.

use super::attaching::Looping;
use super::fast::{define, movable};
use super::packets::text;
use super::programs::{address, build};
use super::server::{Server, eventually, send_signal, send_signals};
use super::spinning::Spinning;
use super::target::{HANDLES_TRAPS, many};

/// The server process to kill.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Started,
    Tracer,
}

impl Victim {
    fn kill(self, server: &Server) {
        send_signal(
            match self {
                Victim::Started => server.child.id(),
                Victim::Tracer => server.tracer(),
            },
            9,
        );
    }
}

/// The program's states at the kill, in the order in which they are tested.
fn states() -> impl Iterator<Item = &'static str> {
    // Several rounds, because only sometimes a thread is stopped between its step and the report.
    let stepped = std::iter::repeat_n("stepped", 8);
    stepped.chain(["halted", "at a breakpoint", "running", "between"])
}

#[test]
fn an_attached_program_runs_on_with_its_original_text() {
    for victim in [Victim::Started, Victim::Tracer] {
        for state in states() {
            let mut looping = Looping::start();
            let original = [looping.tick, looping.main].map(|at| text(looping.pid(), at));
            let (mut server, mut client) = looping.server();
            // No thread reaches this address any more.
            client.plant(looping.main);
            match state {
                "at a breakpoint" => {
                    client.plant(looping.tick);
                    assert!(client.go().contains("swbreak:;"));
                }
                "stepped" => {
                    let stop = client.ask("vCont;s");
                    assert!(stop.starts_with("T05"), "{stop}");
                    // The stub clears single-step state only after a delay. The first question
                    // arrives after that delay, and the second after the reset.
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    client.ask("?");
                    client.ask("?");
                }
                "running" => client.send(b"vCont;c"),
                // The stub has planted and removed traps, and the program has executed instructions
                // in slots.
                "between" => {
                    assert_eq!(
                        client.ask(&format!("QTDP:1:{:x}:E:0:0", looping.tick)),
                        "OK"
                    );
                    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
                    assert_eq!(client.ask("QTStart"), "OK");
                    client.send(b"vCont;c");
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    client.write(b"\x03");
                    assert!(client.text().starts_with("T02"));
                }
                _ => {}
            }
            let name = format!("{victim:?} {state}");
            victim.kill(&server);
            server.wait();
            eventually(&format!("{name}: let go"), || looping.untraced());
            assert_eq!(looping.ended(), None, "{name}");
            let now = [looping.tick, looping.main].map(|at| text(looping.pid(), at));
            assert_eq!(now, original, "{name}");
            looping.finish();
        }
    }
}

/// Kills the tracer at any time, with threads in slots, threads that have just hit a trap, signals,
/// forks and short threads.
#[test]
fn a_kill_during_frequent_tracepoint_hits() {
    let mut spinning = Spinning::start("sft");
    let original = spinning.text();
    for _ in 0..15 {
        let (mut server, mut client) = spinning.server();
        assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
        assert_eq!(
            client.ask(&format!("QTDP:1:{:x}:E:0:0", spinning.hit)),
            "OK"
        );
        assert_eq!(client.ask("QTStart"), "OK");
        client.send(b"vCont;c");
        std::thread::sleep(std::time::Duration::from_millis(10));
        Victim::Started.kill(&server);
        server.wait();
        eventually("let go", || !spinning.traced());
        assert_eq!(spinning.ended(), None);
        assert_eq!(spinning.text(), original);
    }
    spinning.finish();
}

#[test]
fn a_started_program_outlives_the_server_once_it_has_run() {
    let program = build("hits", &["-no-pie"]);
    for victim in [Victim::Started, Victim::Tracer] {
        for resumed in [true, false] {
            let (mut server, mut client) = Server::run(&program, &["2", "100000000"]);
            let end = address(&program, "the_end");
            client.plant(end);
            if resumed {
                client.send(b"vCont;c");
                assert!(client.silent(20));
            }
            victim.kill(&server);
            server.wait();
            // The program's standard output is closed once it has ended.
            let expected = if resumed { "total 200000000\n" } else { "" };
            assert_eq!(server.output(), expected, "{victim:?}");
        }
    }
}

/// Kills both processes, as at the end of a container or when memory runs out. The program runs on
/// with traps and jumps in its text.
#[test]
fn both_processes_are_killed_at_once() {
    if !HANDLES_TRAPS {
        return;
    }
    for round in 0..many(10) {
        let mut spinning = Spinning::start("t");
        let (mut server, mut client) = spinning.server();
        let (hit, never) = (spinning.hit, spinning.never);
        assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
        if round % 2 == 0 {
            let asked = client.ask(&format!("QTDP:1:{hit:x}:E:0:0"));
            assert_eq!(asked, "OK");
        } else {
            assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
            define(
                &mut client,
                1,
                hit,
                movable(&spinning.program, "hit"),
                &["R1"],
            );
        }
        assert_eq!(client.ask(&format!("QTDP:2:{never:x}:E:0:0")), "OK");
        assert_eq!(client.ask("QTStart"), "OK");
        client.pass_all_signals();
        client.send(b"vCont;c");
        std::thread::sleep(std::time::Duration::from_millis(5 + 3 * u64::from(round)));
        send_signals(&[server.child.id(), server.tracer()], 9);
        server.wait();
        eventually("let go", || !spinning.traced());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(spinning.ended(), None, "{round}");
        spinning.finish();
    }
}

/// Like the test above, with a breakpoint that a recorder inserts before any tracepoint, as in the
/// dynamic linker of a program that has just been started.
#[test]
fn a_recorders_breakpoint_outlives_both_processes() {
    if !HANDLES_TRAPS {
        return;
    }
    let program = build("hits", &["-no-pie"]);
    let end = address(&program, "the_end");
    let (mut server, mut client) = Server::run(&program, &["2", "50000000"]);
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    assert_eq!(client.ask("QTStart"), "OK");
    client.plant(end);
    client.send(b"vCont;c");
    assert!(client.silent(20));
    send_signals(&[server.child.id(), server.tracer()], 9);
    server.wait();
    assert_eq!(server.output(), "total 100000000\n");
}

/// The server's two processes behave like one: the exit code, `SIGTERM`, and death by a signal.
#[test]
fn both_processes_behave_like_one() {
    let looping = Looping::start();
    let (mut server, _client) = looping.server();
    server.signal(15);
    assert!(server.wait().success());
    eventually("let go", || looping.untraced());
    looping.finish();
    let (mut server, _client) = Server::run(&build("hits", &["-no-pie"]), &["1", "1"]);
    let tracer = server.tracer();
    let name = std::fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap();
    assert_eq!(name, "unspool-tracer\n");
    send_signal(tracer, 9);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(server.wait().signal(), Some(9));
    let failed = super::server::command()
        .args(["--attach", ":0", "4000000"])
        .output();
    assert!(!failed.unwrap().status.success());
}
