//! Debug registers: the stub reports every access to a watched place by any thread, and the
//! program's results are right.

use super::client::{Client, stopped};
use super::programs::{address, build};
use super::server::Server;
use super::target::{PC, POINTER, WATCHES_BEFORE, kind};

const FEATURES: &str = "swbreak+;hwbreak+";
const THREADS: usize = 4;
const ROUNDS: usize = 300;

fn start() -> (Server, Client, u64, u64) {
    let program = build("hits", &["-no-pie"]);
    let server = Server::start(&[
        "--once",
        ":0",
        program.to_str().unwrap(),
        &THREADS.to_string(),
        &ROUNDS.to_string(),
    ]);
    let client = Client::connect_for(server.port, FEATURES);
    let (hit, counts) = (address(&program, "hit"), address(&program, "counts"));
    (server, client, hit, counts)
}

fn ends_well(mut server: Server, mut client: Client) {
    let end = client.go();
    assert!(end.starts_with("W00"), "{end}");
    drop(client);
    assert!(server.wait().success());
    assert_eq!(server.output(), format!("total {}\n", THREADS * ROUNDS));
}

fn value(client: &mut Client, at: u64) -> u64 {
    let digits = client.ask(&format!("m{at:x},1"));
    u64::from_str_radix(&digits, 16).unwrap()
}

/// If watchpoints trigger before the access, makes the access with the watchpoint removed, as gdb
/// does.
fn past(client: &mut Client, stop: &str, what: &str) {
    if !WATCHES_BEFORE {
        return;
    }
    let (pid, tid) = stopped(stop);
    assert_eq!(client.ask(&format!("z{what}")), "OK");
    let step = client.ask(&format!("vCont;s:p{pid:x}.{tid:x}"));
    assert!(step.starts_with("T05") && !step.contains("watch"), "{step}");
    assert_eq!(client.ask(&format!("Z{what}")), "OK");
}

#[test]
fn every_write_is_reported() {
    // All of the value, its first byte, two bytes.
    for length in [POINTER, 1, 2] {
        let (server, mut client, _, counts) = start();
        let at = counts + 2 * POINTER as u64;
        let what = format!("2,{at:x},{length}");
        assert_eq!(client.ask(&format!("Z{what}")), "OK");
        let mut writers = Vec::new();
        for round in 0..30 {
            let stop = client.go();
            assert!(stop.contains(&format!("watch:{at:x};")), "{stop}");
            writers.push(stopped(&stop).1);
            past(&mut client, &stop, &what);
            assert_eq!(value(&mut client, at), round + 1);
        }
        writers.dedup();
        assert_eq!(writers.len(), 1, "one thread writes there");
        assert_eq!(client.ask(&format!("z{what}")), "OK");
        ends_well(server, client);
    }
}

/// Watchpoints at every offset of a word. The other bytes belong to other threads.
#[test]
fn bytes_inside_a_word() {
    let (server, mut client, hit, counts) = start();
    assert_eq!(client.ask(&format!("Z1,{hit:x},{}", kind())), "OK");
    for (offset, length) in [(1, 1), (2, 2), (3, 1), (1, 3), (2, 1)] {
        let what = format!("2,{:x},{length}", counts + offset);
        assert_eq!(client.ask(&format!("Z{what}")), "OK", "{what}");
        // The program soon changes the lowest byte only. On a machine that writes whole words, the
        // write includes these bytes.
        let stop = client.go();
        assert!(
            stop.contains("watch:") || stop.contains("hwbreak:;"),
            "{stop}"
        );
        assert_eq!(client.ask(&format!("z{what}")), "OK");
    }
    assert_eq!(client.ask(&format!("z1,{hit:x},{}", kind())), "OK");
    ends_well(server, client);
}

#[test]
fn hardware_breakpoints() {
    let (server, mut client, hit, _) = start();
    let what = format!("1,{hit:x},{}", kind());
    assert_eq!(client.ask(&format!("Z{what}")), "OK");
    for _ in 0..20 {
        let stop = client.go();
        assert!(stop.starts_with("T05hwbreak:;"), "{stop}");
        assert_eq!(client.register(PC), hit);
    }
    assert_eq!(client.ask(&format!("z{what}")), "OK");
    ends_well(server, client);
}

/// Too many watchpoints for the debug registers: those in place keep working, and the program
/// continues when they are removed.
#[test]
fn more_watchpoints_than_debug_registers() {
    let (server, mut client, _, counts) = start();
    let what = |index: u64| format!("2,{:x},{POINTER}", counts + index * POINTER as u64);
    let fits = (0..64)
        .take_while(|index| client.ask(&format!("Z{}", what(*index))) == "OK")
        .count() as u64;
    assert!((1..64).contains(&fits), "{fits}");
    let stop = client.go();
    assert!(stop.contains("watch:"), "{stop}");
    for index in 0..fits {
        assert_eq!(client.ask(&format!("z{}", what(index))), "OK");
    }
    ends_well(server, client);
}
