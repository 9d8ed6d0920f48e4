//! The budget: the stub pauses tracepoints that are hit too often, and reports how many hits they
//! missed.

use super::client::{Client, unhex};
use super::programs::{address, build};
use super::server::{Server, eventually};
use super::target::PC;
use super::tracepoints::define;

/// The server's report on one tracepoint: among others the most expensive second in hundredths of a
/// percent, and the time in microseconds by which a single hit exceeded the budget.
#[derive(Debug)]
struct Told {
    worst: u64,
    overrun_us: u64,
    hits: u64,
    pauses: u64,
    paused_ms: u64,
    missed: u64,
}

fn told(client: &mut Client, tracepoint: u32) -> Told {
    let command: String = "budget".bytes().map(|b| format!("{b:02x}")).collect();
    let console = client.ask(&format!("qRcmd,{command}"));
    assert_eq!(client.text(), "OK");
    let text = String::from_utf8(unhex(&console[1..])).unwrap();
    let number = |text: &str, after: &str| -> u64 {
        let (_, rest) = text.split_once(after).unwrap_or_else(|| panic!("{text}"));
        let digits = rest.chars().filter(|c| *c != '.');
        let digits: String = digits.take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{text}"))
    };
    let line = format!("Tracepoint {tracepoint} at");
    let line = text.lines().find(|l| l.starts_with(&line)).expect(&text);
    Told {
        worst: number(&text, "most expensive second: "),
        overrun_us: number(&text, "largest excess at once: "),
        hits: number(line, ": "),
        pauses: number(line, "paused "),
        paused_ms: number(line, "times, "),
        missed: number(line, "about "),
    }
}

/// The notes of gdb's `tstatus`.
fn notes(client: &mut Client) -> String {
    let status = client.ask("qTStatus");
    let (_, notes) = status.split_once(";notes:").expect(&status);
    String::from_utf8(unhex(notes.trim_end_matches(':'))).unwrap()
}

/// Runs `paced` to its end with tracepoints at `hit` (1) and `rare` (2), and drains the buffer.
/// Returns the number of frames for tracepoint 1.
fn trace(server: &Server, client: &mut Client, program: &std::path::Path) -> u64 {
    let _ = server;
    assert_eq!(client.ask("QTBuffer:size:1000000"), "OK");
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    for (number, symbol) in [(1, "hit"), (2, "rare")] {
        let at = address(program, symbol);
        assert_eq!(client.ask(&format!("QTDP:{number}:{at:x}:E:0:0")), "OK");
    }
    assert_eq!(client.ask("QTStart"), "OK");
    let end = address(program, "the_end");
    client.plant(end);
    assert!(client.go().contains("swbreak:;"));
    let mut frames = 0;
    for body in &client.notified {
        let Some(rest) = body.strip_prefix(b"UnspoolTrace:") else {
            continue;
        };
        let start = rest.iter().position(|byte| *byte == b';').unwrap() + 1;
        let plain = super::client::unescape(&rest[start..]);
        let mut rest = &plain[..];
        // Each frame has a number, a length and blocks. Frames of hits have no blocks here, marks
        // have one.
        while let [1 | 2, 0, a, b, c, d, blocks @ ..] = rest {
            let length = u32::from_le_bytes([*a, *b, *c, *d]);
            frames += u64::from(rest[0] == 1 && length == 0);
            rest = &blocks[length as usize..];
        }
        assert!(rest.is_empty(), "{rest:x?}");
    }
    frames
}

/// The last report about a tracepoint: pauses, nanoseconds, missed hits.
fn notified(client: &Client, tracepoint: u32) -> Option<[u64; 3]> {
    let entries = client
        .notifications
        .iter()
        .filter_map(|body| body.strip_prefix("UnspoolMissed:"))
        .flat_map(|body| body.split(';'));
    let mut numbers = entries.map(|entry| {
        let numbers = entry
            .split(',')
            .map(|n| u64::from_str_radix(n, 16).unwrap());
        numbers.collect::<Vec<_>>()
    });
    let last = numbers.rfind(|n| n[0] == u64::from(tracepoint))?;
    Some([last[1], last[2], last[3]])
}

#[test]
fn the_hottest_tracepoint_is_paused_and_its_missed_hits_are_counted() {
    let program = build("paced", &["-no-pie"]);
    for (threads, rounds) in [(1, 150_000), (4, 40_000)] {
        let path = program.to_str().unwrap();
        let (threads, rounds) = (threads.to_string(), rounds.to_string());
        // The default budget.
        let mut server = Server::start(&["--once", ":0", path, &threads, &rounds]);
        let mut client = Client::connect(server.port);
        let frames = trace(&server, &mut client, &program);
        let hot = told(&mut client, 1);
        assert_eq!(hot.hits, frames);
        let notes = notes(&mut client);
        assert!(notes.starts_with("hits are missing"), "{notes}");
        assert!(hot.pauses > 0 && hot.paused_ms > 0, "{hot:?}");
        // 5 %, plus the time by which single hits exceed the budget, because the server may lose
        // the processor during one.
        assert!(hot.worst <= 500 + 2 * hot.overrun_us / 100, "{hot:?}");
        let truth: u64 = rounds.parse::<u64>().unwrap() * threads.parse::<u64>().unwrap();
        // The accuracy of the estimate depends on the load of the machine; the simulation in
        // `budget.rs` tests it.
        assert!(hot.hits < truth && hot.missed > 0, "{hot:?} of {truth}");
        // A rare tracepoint is paused only if the server itself had to wait during one of its hits.
        let rare = told(&mut client, 2);
        assert!(rare.pauses <= hot.pauses, "{rare:?} {hot:?}");
        assert!(
            rare.hits == 20 * threads.parse::<u64>().unwrap() || rare.pauses > 0,
            "{rare:?}"
        );
        let [pauses, _, missed] = notified(&client, 1).expect("a notification");
        assert_eq!((pauses, missed), (hot.pauses, hot.missed));
        assert_eq!(notified(&client, 2).is_some(), rare.pauses > 0);
        assert_eq!(client.ask("D"), "OK");
        assert!(server.wait().success());
        assert_eq!(server.output(), format!("total {truth}\n"));
    }
}

#[test]
fn without_a_budget_every_hit_is_recorded() {
    let program = build("paced", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["2", "10000"]);
    let frames = trace(&server, &mut client, &program);
    let hot = told(&mut client, 1);
    assert_eq!(
        (frames, hot.hits, hot.pauses, hot.missed),
        (20_000, 20_000, 0, 0)
    );
    assert_eq!(notified(&client, 1), None);
    assert_eq!(notes(&mut client), "");
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 20000\n");
}

/// The stub never pauses tracepoints that the client needs, whatever the budget is.
#[test]
fn needed_tracepoints_are_never_paused() {
    let program = build("paced", &["-no-pie"]);
    let path = program.to_str().unwrap();
    let mut server = Server::start(&["--once", "--budget", "0.001%", ":0", path, "2", "10000"]);
    let mut client = Client::connect(server.port);
    let [hit, end] = ["hit", "the_end"].map(|symbol| address(&program, symbol));
    assert_eq!(client.ask("QTinit"), "OK");
    assert_eq!(client.ask("QTBuffer:size:1000000"), "OK");
    // trace_needed
    assert_eq!(client.ask("QTDV:5:0:0:74726163655f6e6565646564"), "OK");
    define(&mut client, 1, hit, &["X6,22012d000527"]);
    assert_eq!(client.ask("QTStart"), "OK");
    client.plant(end);
    assert!(client.go().contains("swbreak:;"));
    let needed = told(&mut client, 1);
    assert_eq!((needed.hits, needed.pauses, needed.missed), (20_000, 0, 0));
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 20000\n");
}

/// The program waits for an observer only if the stub was started without a budget.
#[test]
fn an_observer_has_the_program_wait_only_without_a_budget() {
    let program = build("paced", &["-no-pie"]);
    let path = program.to_str().unwrap();
    for (budget, answer) in [("5%", "E01"), ("none", "OK")] {
        let server = Server::start(&["--budget", budget, ":0", path, "1", "20"]);
        let mut observer = Client::observe(server.port);
        assert_eq!(observer.ask("QTinit"), "OK");
        assert_eq!(observer.ask("QUnspoolTrace:1"), "OK");
        assert_eq!(observer.ask("QUnspoolTrace:2"), answer);
        assert_eq!(observer.ask("QTStart"), "OK");
    }
}

/// A client can limit the cost of tracing, up to the stub's own limit and until the client leaves.
#[test]
fn a_client_limits_the_cost_of_tracing() {
    let program = build("paced", &["-no-pie"]);
    let path = program.to_str().unwrap();
    let mut server = Server::start(&["--once", ":0", path, "2", "10000"]);
    let mut client = Client::connect(server.port);
    for wrong in ["", "x", "0", "2711", "5%"] {
        assert_eq!(
            client.ask(&format!("QUnspoolBudget:{wrong}")),
            "E16",
            "{wrong}"
        );
    }
    assert_eq!(client.ask("QUnspoolBudget:1"), "OK");
    assert_eq!(client.ask("QUnspoolBudget:none"), "OK");
    let frames = trace(&server, &mut client, &program);
    let hot = told(&mut client, 1);
    assert_eq!((frames, hot.pauses, hot.missed), (20_000, 0, 0));
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());

    let server = Server::start(&["--budget", "5%", ":0", path, "1", "20"]);
    let mut observer = Client::observe(server.port);
    for (budget, answer) in [("none", "E01"), ("1f5", "E01"), ("1f4", "OK"), ("1", "OK")] {
        assert_eq!(observer.ask(&format!("QUnspoolBudget:{budget}")), answer);
    }

    let server = Server::start(&[":0", path, "1", "20"]);
    let mut first = Client::observe(server.port);
    let mut second = Client::observe(server.port);
    assert_eq!(first.ask("QUnspoolTrace:2"), "E01");
    assert_eq!(first.ask("QUnspoolBudget:none"), "OK");
    assert_eq!(first.ask("QUnspoolTrace:2"), "OK");
    assert_eq!(second.ask("QUnspoolBudget:64"), "OK");
    assert_eq!(first.ask("QUnspoolTrace:2"), "E01");
    drop(second);
    eventually("the stricter one's limit is gone", || {
        first.ask("QUnspoolTrace:2") == "OK"
    });
}

/// Traps of paused tracepoints are invisible, stay intact and are removed in the end. Breakpoints
/// at the same address work.
#[test]
fn a_breakpoint_at_a_paused_tracepoint() {
    let program = build("paced", &["-no-pie"]);
    let path = program.to_str().unwrap();
    let mut server = Server::start(&["--once", ":0", path, "1", "60000"]);
    let mut client = Client::connect(server.port);
    let hit = address(&program, "hit");
    let original = client.ask(&format!("m{hit:x},4"));
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    assert_eq!(client.ask(&format!("QTDP:1:{hit:x}:E:0:0")), "OK");
    assert_eq!(client.ask("QTStart"), "OK");
    for _ in 0..10 {
        client.send(b"vCont;c");
        std::thread::sleep(std::time::Duration::from_millis(20));
        client.write(b"\x03");
        assert!(client.text().starts_with("T02"));
        assert_eq!(client.ask(&format!("m{hit:x},4")), original);
        client.plant(hit);
        for _ in 0..3 {
            let stop = client.go();
            assert!(stop.contains("swbreak:;"), "{stop}");
            assert_eq!(client.register(PC), hit);
        }
        client.lift(hit);
    }
    assert!(told(&mut client, 1).pauses > 0);
    assert_eq!(client.ask("D"), "OK");
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 60000\n");
}
