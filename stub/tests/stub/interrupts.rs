//! Interrupts (`0x03`, `vCtrlC`) that arrive after another event, or while nothing runs. The stub
//! reports them later, once. The expected answers are those that gdbserver gives to the same bytes.

use super::client::{Client, stopped};
use super::gdb::gdb;
use super::programs::{address, build};
use super::server::Server;
use super::target::{PC, STUB};

/// Starts a program whose four threads call `hit` without end. Returns the address of `hit`, too.
fn start() -> (Server, Client, u64) {
    let program = build("hits", &["-no-pie"]);
    let (server, client) = Server::run(&program, &["4", "1000000000"]);
    (server, client, address(&program, "hit"))
}

fn id(stop: &str) -> String {
    let (pid, tid) = stopped(stop);
    format!("p{pid:x}.{tid:x}")
}

/// Steps over a hit as gdb does when the hit's condition is false. Returns the stop that ends the
/// step.
fn step_off(client: &mut Client, hit: u64, stop: &str) -> String {
    assert!(stop.starts_with("T05swbreak:;"), "{stop}");
    client.lift(hit);
    let stop = client.ask(&format!("vCont;s:{}", id(stop)));
    client.plant(hit);
    stop
}

#[test]
fn interrupts_during_frequent_hits() {
    let (_server, mut client, hit) = start();
    client.plant(hit);
    let mut stop = client.go();
    for _ in 0..50 {
        let stepped = step_off(&mut client, hit, &stop);
        assert!(stepped.starts_with("T05"), "told twice: {stepped}");
        // Resume and interrupt in one write, to catch threads on their way to the trap.
        client.write(b"$vCont;c#a8\x03");
        stop = client.text();
        if !stop.starts_with("T02") {
            // The hit came first.
            let at = client.register(PC);
            stop = step_off(&mut client, hit, &stop);
            assert!(stop.starts_with("T02"), "lost: {stop}");
            assert_eq!(client.register(PC), at, "it has moved");
        }
        stop = client.go();
    }
}

#[test]
fn interrupts_while_halted() {
    let (_server, mut client, hit) = start();
    client.plant(hit);
    // Before the first resume. Two interrupts count as one.
    client.write(b"\x03\x03");
    assert_eq!(client.ask("vCtrlC"), "OK");
    assert!(client.go().starts_with("T02"));
    let mut stop = client.go();
    for _ in 0..20 {
        client.write(b"\x03");
        let interrupted = step_off(&mut client, hit, &stop);
        assert!(interrupted.starts_with("T02"), "{interrupted}");
        assert_eq!(id(&interrupted), id(&stop));
        assert_eq!(client.register(PC), hit);
        stop = client.go();
        let stepped = step_off(&mut client, hit, &stop);
        assert!(stepped.starts_with("T05"), "told twice: {stepped}");
        stop = client.go();
    }
}

/// The stub delivers a signal given with an interrupted resume at the next resume.
#[test]
fn an_interrupted_resume_with_a_signal() {
    let (_server, mut client, _) = start();
    client.write(b"\x03");
    assert!(client.ask("vCont;C0f").starts_with("T02"));
    let end = client.go();
    assert!(end.starts_with("X0f"), "{end}");
}

#[test]
fn interrupts_of_another_process_or_client_are_dropped() {
    let program = build("hits", &["-no-pie"]);
    let server = Server::start(&[":0", program.to_str().unwrap(), "2", "10"]);
    let the_end = address(&program, "the_end");
    let mut first = Client::connect(server.port);
    first.write(b"\x03");
    // The reply shows that the stub has read the interrupt.
    assert!(first.ask("?").starts_with("T05"));
    drop(first);
    let mut client = Client::connect(server.port);
    client.plant(the_end);
    let stop = client.go();
    assert!(stop.starts_with("T05swbreak:;"), "{stop}");
    assert_eq!(client.ask("!"), "OK");
    client.write(b"\x03");
    client.send(b"R00");
    assert!(client.ask("?").starts_with("T05"));
    client.plant(the_end);
    let stop = client.go();
    assert!(stop.starts_with("T05swbreak:;"), "{stop}");
    client.send(b"k");
}

#[test]
fn interrupts_in_non_stop_mode() {
    let (_server, mut client, hit) = start();
    assert_eq!(client.ask("QNonStop:1"), "OK");
    assert!(client.ask("?").starts_with("T05"));
    assert_eq!(client.ask("vStopped"), "OK");
    // No thread runs.
    let at = client.register(PC);
    assert_eq!(client.ask("vCtrlC"), "OK");
    assert_eq!(client.ask("vCont;c"), "OK");
    let stop = client.told("Stop");
    assert!(stop.starts_with("T02"), "{stop}");
    assert_eq!(client.ask("vStopped"), "OK");
    assert_eq!(client.register(PC), at);
    // All threads hit the breakpoint.
    client.plant(hit);
    assert_eq!(client.ask("vCont;c"), "OK");
    let (mut asked, mut told) = (0, 0);
    let mut stop = client.told("Stop");
    while told < 50 {
        // The notification may not come, because resumed threads hit the breakpoint again
        // immediately.
        if stop == "OK" {
            stop = client.told("Stop");
        }
        if asked == told {
            assert_eq!(client.ask("vCtrlC"), "OK");
            asked += 1;
        }
        told += u32::from(stop.starts_with("T02"));
        assert!(told <= asked, "told twice");
        let resume = format!("vCont;c:{}", id(&stop));
        stop = client.ask("vStopped");
        assert_eq!(client.ask(&resume), "OK");
    }
}

/// gdb evaluates the condition itself: it gets all hits and reports none of them.
#[test]
fn gdb_evaluates_the_condition() {
    let program = build("hits", &["-no-pie"]);
    let rounds = 8;
    let one = "python threading.Timer(0.2, interrupt).start()\ncontinue\n";
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} 4 1000000000\n\
             set breakpoint condition-evaluation host\nbreak hit if 0\n\
             python import threading\n\
             python interrupt = lambda: gdb.post_event(lambda: gdb.execute('interrupt'))\n\
             {}kill\n",
            program.display(),
            one.repeat(rounds)
        ),
    );
    let told = text.matches("received signal SIGINT").count();
    assert_eq!(told, rounds, "{text}");
}
