//! Signals: reported, passed, delivered, never lost.

use std::path::Path;

use super::client::{Client, stopped};
use super::programs::{address, build};
use super::server::{Server, eventually, send_signal};
use super::target::{self, PC, POINTER};

const RESULT: &str = "usr1 50 usr2 1 rt 50 value 250\n";

/// The stub reports every signal, and delivers it when the client resumes with it.
#[test]
fn reported_and_delivered() {
    let program = build("signals", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["n"]);
    let mut told = 0;
    let mut stop = client.go();
    while let Some(rest) = stop.strip_prefix('T') {
        let (_, tid) = stopped(&stop);
        let number = rest[..2].to_owned();
        assert!(["1e", "1f", "31"].contains(&&*number), "{stop}");
        told += 1;
        stop = client.ask(&format!("vCont;C{number}:{tid:x};c"));
    }
    assert!(stop.starts_with("W00"), "{stop}");
    assert!(told >= 101, "{told}");
    drop(client);
    server.wait();
    assert_eq!(server.output(), RESULT);
}

#[test]
fn passed_without_a_stop() {
    let program = build("signals", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["n"]);
    assert_eq!(client.ask("QPassSignals:1e;1f;31"), "OK");
    assert!(client.go().starts_with("W00"));
    drop(client);
    server.wait();
    assert_eq!(server.output(), RESULT);
}

/// A job-control stop between the process's start and its first instruction, as from the terminal's
/// key. After it is continued, the process is at its first instruction.
#[test]
fn stopped_while_it_is_started() {
    let program = build("signals", &["-no-pie"]);
    let wrapper = r#"(sleep 1; echo continued; kill -CONT $$) & kill -STOP $$; exec "$@""#;
    let program = program.to_str().unwrap();
    let options = ["--once", "--wrapper", "sh", "-c", wrapper, "sh", "--", ":0"];
    let mut server = Server::start(&[&options[..], &[program, "n"]].concat());
    let mut client = Client::connect(server.port);
    // Include the signals from its wrapper: SIGCONT, and SIGCHLD of the wrapper's child.
    assert_eq!(client.ask("QPassSignals:13;14;1e;1f;31"), "OK");
    let end = client.go();
    assert!(end.starts_with("W00"), "{end}");
    drop(client);
    server.wait();
    assert_eq!(server.output(), format!("continued\n{RESULT}"));
}

/// An interrupt in a system call, with a trap on the next instruction. A step there would not end
/// while the call lasts.
#[test]
fn a_breakpoint_after_an_interrupted_system_call() {
    let (mut server, mut client) = Server::run(Path::new("/bin/sleep"), &["1000"]);
    let (pid, _) = stopped(&client.ask("?"));
    let is = |states: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let (_, state) = status.split_once("State:\t").unwrap();
        state.starts_with(|state| states.contains(state))
    };
    client.send(b"vCont;c");
    eventually("asleep", || is("S"));
    client.write(b"\x03");
    assert!(client.text().starts_with("T02"));
    // After the call instruction (x86-64), or at it.
    let here = client.register(PC);
    // /bin/sleep may use another instruction set than the tests' own programs.
    let t32 = target::STATE.is_some_and(|state| client.register(state) & 1 << 5 != 0);
    let kind = if t32 { 2 } else { target::kind() };
    assert_eq!(client.ask(&format!("Z0,{here:x},{kind:x}")), "OK");
    client.send(b"vCont;c");
    if target::CALLS_AGAIN {
        let stop = client.text();
        assert!(stop.contains("swbreak:;"), "{stop}");
        client.send(b"vCont;c");
    }
    eventually("asleep again", || is("S"));
    // Not SIGINT, because shells on a board start their background programs with SIGINT ignored.
    send_signal(pid, 15);
    let stop = client.text();
    assert!(stop.starts_with("T0f"), "{stop}");
    assert_eq!(client.register(PC), here);
    let end = client.ask("vCont;C0f");
    assert!(end.starts_with("X0f"), "{end}");
    drop(client);
    server.wait();
}

/// Another thread hits a breakpoint all the time, so that signals arrive in the middle of steps.
#[test]
fn signals_during_frequent_breakpoint_hits() {
    for pass in [false, true] {
        let program = build("signals", &["-no-pie"]);
        let (mut server, mut client) = Server::run(&program, &["n", "t"]);
        if pass {
            client.ask("QPassSignals:1e;1f;31");
        }
        let marked = address(&program, "marked");
        client.plant(marked);
        let mut stop = client.go();
        let mut hits = 0;
        while let Some(rest) = stop.strip_prefix('T') {
            let (_, tid) = stopped(&stop);
            let number = rest[..2].to_owned();
            stop = if number == "05" {
                hits += 1;
                if hits == 3000 {
                    client.lift(marked);
                }
                client.go()
            } else {
                assert!(!pass, "{stop}");
                client.ask(&format!("vCont;C{number}:{tid:x};c"))
            };
        }
        assert!(stop.starts_with("W00"), "{stop}");
        assert!(hits > 0);
        drop(client);
        server.wait();
        assert_eq!(server.output(), RESULT, "pass {pass}");
    }
}

#[test]
fn a_fault_is_reported_with_its_siginfo_and_then_kills() {
    let program = build("signals", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["s"]);
    client.ask("QPassSignals:1e;1f;31");
    let stop = client.go();
    assert!(stop.starts_with("T0b"), "{stop}");
    client.send(b"qXfer:siginfo:read::0,80");
    let info = super::client::unescape(&client.receive()[1..]);
    assert_eq!(info.len(), 128);
    assert_eq!(info[0], 11);
    // After three ints, aligned as a pointer.
    let address = if POINTER == 8 { 16 } else { 12 };
    assert_eq!(info[address], 16, "si_addr");
    let (pid, tid) = stopped(&stop);
    let end = client.ask(&format!("vCont;C0b:p{pid:x}.{tid:x};c"));
    assert_eq!(end, format!("X0b;process:{pid:x}"));
}

/// gdb makes called functions return to such an address.
#[test]
fn a_breakpoint_in_memory_that_is_not_executable() {
    let program = build("signals", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["n"]);
    assert_eq!(client.ask("QPassSignals:4;7;b;1e;1f;31"), "OK");
    let main = address(&program, "main");
    client.plant(main);
    client.go();
    let stack = (client.register(target::SP) - 0x400) & !0xf;
    client.plant(stack);
    client.set_register(PC, stack);
    let stop = client.go();
    assert!(stop.starts_with("T0b"), "{stop}");
    assert_eq!(client.register(PC), stack);
    client.set_register(PC, target::code(main));
    client.lift(stack);
    client.lift(main);
    assert!(client.go().starts_with("W00"));
}

#[test]
fn kill_ends_the_program() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["4", "100000000"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    let (pid, _) = stopped(&client.go());
    assert_eq!(client.ask(&format!("vKill;{pid:x}")), "OK");
    assert!(!std::fs::exists(format!("/proc/{pid}")).unwrap());
    drop(client);
    assert!(server.wait().success());
}
