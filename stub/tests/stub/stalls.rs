//! Reports of stalls: a client that drains its trace learns for how long threads were stopped.

use std::time::Duration;

use super::client::Client;
use super::programs::{address, build};
use super::server::Server;
use super::tracepoints::define;

const NAP: Duration = Duration::from_millis(150);

/// Sum of the spans in all notifications with this name, in nanoseconds.
fn total(client: &Client, name: &str) -> u64 {
    let bodies = client.notifications.iter();
    let bodies = bodies.filter_map(|body| body.strip_prefix(name)?.strip_prefix(':'));
    let spans = bodies.flat_map(|body| body.split(';'));
    let length = |span: &str| {
        let (from, to) = span.split_once(',').unwrap();
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        number(to) - number(from)
    };
    spans.map(length).sum()
}

#[test]
fn halts_for_a_client_are_reported_as_stalls() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let (mut server, mut client) = Server::run(&program, &["2", "2000"]);
    // A halt before there is a trace.
    std::thread::sleep(NAP);
    assert_eq!(client.ask("QTinit"), "OK");
    assert_eq!(client.ask("QTBuffer:size:1000000"), "OK");
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    define(&mut client, 1, hit, &[]);
    assert_eq!(client.ask("QTStart"), "OK");
    client.plant(end);
    assert!(client.go().contains("swbreak:;"));
    let first = total(&client, "UnspoolHalted");
    assert!(first >= NAP.as_nanos() as u64, "{first}");
    // A halt while the trace runs.
    std::thread::sleep(NAP);
    assert!(client.go().starts_with("W00"));
    let both = total(&client, "UnspoolHalted");
    assert!(both - first >= NAP.as_nanos() as u64, "{first} {both}");
    // There are 4000 hits with one stop each, and few of them take a millisecond.
    let short = client.notifications.iter();
    let mut short = short.filter_map(|body| body.strip_prefix("UnspoolShortStops:"));
    let (count, ns) = short
        .next_back()
        .expect("short stops")
        .split_once(',')
        .unwrap();
    let number = |digits| u64::from_str_radix(digits, 16).unwrap();
    let (count, ns) = (number(count), number(ns));
    assert!(ns > 0 && ns < count * 1_000_000, "{count} {ns}");
    drop(client);
    server.wait();
    assert_eq!(server.output(), "total 4000\n");
}
