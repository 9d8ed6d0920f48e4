//! Fast tracepoints when threads, programs and jumps come to an end.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use super::super::client::Client;
use super::super::programs::{address, build};
use super::super::server::{Server, eventually, send_signal};
use super::super::spinning::Spinning;
use super::super::target::many;
use super::super::tracepoints::frames;
use super::{define, movable, run_to, set_going, told};

/// A new thread that reuses the memory of an ended one is not mistaken for it.
#[test]
fn threads_that_reuse_memory_are_told_apart() {
    let program = build("successors", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["250"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let movable = movable(&program, "hit");
    assert_eq!(client.ask("QUnspoolThreads:1"), "OK");
    assert_eq!(client.ask("QTDV:5:0:0:74726163655f746872656164"), "OK");
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    define(&mut client, 1, hit, movable, &["X4,2e000527"]);
    assert_eq!(client.ask("QTStart"), "OK");
    run_to(&mut client, end);
    let mut counts = BTreeMap::new();
    for (_, thread, known) in frames(&client) {
        assert!(known.contains(&(thread as u32)), "{thread}");
        *counts.entry(thread).or_insert(0) += 1;
    }
    let counts: Vec<u32> = counts.into_values().collect();
    assert_eq!(counts, [5; 1000]);
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 5000\n");
}

/// The last hits are reported whichever thread ends the process, even if the first thread ended
/// long before.
#[test]
fn the_end_comes_from_another_thread() {
    let program = build("leader", &["-no-pie"]);
    let alone = address(&program, "alone");
    for (otherwise, end) in [("", "W03"), ("returns", "W00"), ("waits", "W03")] {
        let (_server, mut client) = Server::run(&program, &["100", otherwise]);
        assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
        define(&mut client, 1, alone, movable(&program, "alone"), &["R1"]);
        assert_eq!(client.ask("QTStart"), "OK");
        let stop = client.go();
        assert!(stop.starts_with(end), "{stop}");
        assert_eq!(told(&client), 100);
    }
}

/// A child that is forked while its parent's jumps are removed has no jumps left either.
#[test]
fn a_fork_during_detach() {
    let spinning = Spinning::start("f");
    for _ in 0..many(50) {
        let (mut server, mut client) = spinning.server();
        planted(&mut client, &spinning);
        sleep(Duration::from_millis(2));
        drop(client);
        server.wait();
    }
    spinning.finish();
}

/// The server ends if the program is killed while the server removes its jumps.
#[test]
fn a_kill_during_detach() {
    for round in 0..many(40) {
        let spinning = Spinning::start("t");
        let (mut server, mut client) = spinning.server();
        planted(&mut client, &spinning);
        client.write(b"\x03");
        assert!(client.text().starts_with("T02"));
        client.send(b"D");
        sleep(Duration::from_micros(50 * u64::from(round)));
        send_signal(spinning.pid(), 9);
        // If the kill came first, the detach fails and the server may wait for another client; so
        // disconnect.
        drop(client);
        server.wait();
    }
}

/// Plants a jump at a function that the running program's threads call all the time.
fn planted(client: &mut Client, spinning: &Spinning) {
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    define(client, 1, spinning.hit, 5, &["R1"]);
    assert_eq!(client.ask("QTStart"), "OK");
    set_going(client);
    // At each halt, one of eight threads may be inside the displaced instructions.
    eventually("a jump", || {
        client.write(b"\x03");
        let stop = client.text();
        assert!(stop.starts_with("T02"), "{stop}");
        let is_planted = client.ask("qUnspoolPlaces") == "1;";
        client.send(b"vCont;c");
        is_planted
    });
}
