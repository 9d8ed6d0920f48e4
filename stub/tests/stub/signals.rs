//! Signals: told, passed, delivered, never lost.

use super::client::stopped;
use super::programs::{address, build};
use super::server::Server;

const RESULT: &str = "usr1 50 usr2 1 rt 50 value 250\n";

/// Every signal is reported and given back.
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

/// Another thread hits a breakpoint all the while, so that signals come in the middle of steps.
#[test]
fn under_breakpoint_fire() {
    for pass in [false, true] {
        let program = build("signals", &["-no-pie"]);
        let (mut server, mut client) = Server::run(&program, &["n", "t"]);
        if pass {
            client.ask("QPassSignals:1e;1f;31");
        }
        let marked = address(&program, "marked");
        client.ask(&format!("Z0,{marked:x},1"));
        let mut stop = client.go();
        let mut hits = 0;
        while let Some(rest) = stop.strip_prefix('T') {
            let (_, tid) = stopped(&stop);
            let number = rest[..2].to_owned();
            stop = if number == "05" {
                hits += 1;
                if hits == 3000 {
                    client.ask(&format!("z0,{marked:x},1"));
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
fn a_fault_is_told_with_its_cause_and_then_kills() {
    let program = build("signals", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["s"]);
    client.ask("QPassSignals:1e;1f;31");
    let stop = client.go();
    assert!(stop.starts_with("T0b"), "{stop}");
    client.send(b"qXfer:siginfo:read::0,80");
    let info = super::client::unescape(&client.receive()[1..]);
    assert_eq!(info.len(), 128);
    assert_eq!(info[0], 11);
    assert_eq!(info[16], 16, "si_addr");
    let (pid, tid) = stopped(&stop);
    let end = client.ask(&format!("vCont;C0b:p{pid:x}.{tid:x};c"));
    assert_eq!(end, format!("X0b;process:{pid:x}"));
}

#[test]
fn kill_ends_the_program() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["4", "100000000"]);
    let hit = address(&program, "hit");
    client.ask(&format!("Z0,{hit:x},1"));
    let (pid, _) = stopped(&client.go());
    assert_eq!(client.ask(&format!("vKill;{pid:x}")), "OK");
    assert!(!std::fs::exists(format!("/proc/{pid}")).unwrap());
    drop(client);
    assert!(server.wait().success());
}
