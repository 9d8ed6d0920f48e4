//! Runs everything at once for a given time, then checks whether the program noticed:
//!
//! ```text
//! cargo bench -p unspool-stub --bench soak                    # half a minute
//! cargo bench -p unspool-stub --bench soak -- --minutes 15
//! ```
//!
//! One program (`tests/programs/spin.c`) runs all the time: threads that call a function, a signal
//! handler that does, too, forks, short threads, a library that is loaded and unloaded. Servers
//! come to it one after the other, put tracepoints and breakpoints where it runs, and leave in
//! every way there is. In the end the program says whether all it counted was right. Apart from
//! that, and on programs of its own, the tracer is killed where the program can lose: how often it
//! does, is printed.

#![allow(unreachable_pub, dead_code)]

#[path = "../tests/stub"]
mod stub {
    pub mod client;
    pub mod programs;
    pub mod server;
    pub mod spinning;
    pub mod target;
}

use std::time::{Duration, Instant};

use stub::client::Client;
use stub::server::{Server, eventually, send_signal};
use stub::spinning::Spinning;

/// How a server leaves.
const WAYS: [&str; 5] = [
    "detached",
    "the client vanished",
    "SIGTERM",
    "SIGKILL",
    "detached, halted in between",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let minutes = arguments
        .iter()
        .position(|word| word == "--minutes")
        .and_then(|at| arguments.get(at + 1)?.parse::<f64>().ok())
        .unwrap_or(0.4);
    let time = Duration::from_secs_f64(minutes * 60.0);
    soak(time);
    kill_tracers(if minutes < 1.0 { 20 } else { 200 });
}

fn soak(time: Duration) {
    let mut program = Spinning::start("sftu");
    let text = program.text();
    let started = Instant::now();
    let mut rounds = [0; WAYS.len()];
    for round in 0.. {
        if started.elapsed() > time {
            break;
        }
        let way = round % WAYS.len();
        let budget = if round % 2 == 0 { "none" } else { "5%" };
        let mut server = program.server_with(budget);
        let mut client = Client::connect(server.port);
        set_up(&mut client, &program);
        client.send(b"vCont;c");
        std::thread::sleep(Duration::from_millis(5 * (round as u64 % 7)));
        leave(way, &mut server, client);
        eventually("let go", || !program.traced());
        assert_eq!(program.ended(), None, "round {round}: {}", WAYS[way]);
        assert_eq!(program.text(), text, "round {round}: {}", WAYS[way]);
        rounds[way] += 1;
    }
    program.finish();
    println!(
        "{:?}: the program's own results were right",
        started.elapsed()
    );
    for (way, rounds) in WAYS.iter().zip(rounds) {
        println!("{rounds:8} times {way}");
    }
}

/// All signals pass; a tracepoint where all threads run, a breakpoint where no thread runs.
fn set_up(client: &mut Client, program: &Spinning) {
    let all: Vec<String> = (1..=0x91)
        .filter(|n| ![2, 5].contains(n))
        .map(|n| format!("{n:x}"))
        .collect();
    assert_eq!(client.ask(&format!("QPassSignals:{}", all.join(";"))), "OK");
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    assert_eq!(
        client.ask(&format!("QTDP:1:{:x}:E:0:0-", program.hit)),
        "OK"
    );
    assert_eq!(
        client.ask(&format!("QTDP:-1:{:x}:M7,0,80", program.hit)),
        "OK"
    );
    assert_eq!(client.ask("QTStart"), "OK");
    assert_eq!(client.ask(&format!("Z0,{:x},1", program.never)), "OK");
}

fn leave(way: usize, server: &mut Server, mut client: Client) {
    match WAYS[way] {
        "the client vanished" => drop(client),
        "SIGTERM" => server.signal(15),
        "SIGKILL" => send_signal(server.child.id(), 9),
        way => {
            for _ in 0..if way == "detached" { 1 } else { 5 } {
                client.write(b"\x03");
                let stop = client.text();
                client.send(go_on(&stop).as_bytes());
            }
            client.write(b"\x03");
            let stop = client.text();
            assert!(stop.starts_with('T'), "{stop}");
            assert_eq!(client.ask("D"), "OK");
        }
    }
    server.wait();
}

/// Continues; a signal that came before the request to pass it is delivered.
fn go_on(stop: &str) -> String {
    assert!(stop.starts_with('T'), "{stop}");
    match &stop[1..3] {
        "00" | "02" | "05" => "vCont;c".to_owned(),
        signal => {
            let thread = stub::client::field(stop, "thread").expect(stop);
            format!("vCont;C{signal}:{thread};c")
        }
    }
}

/// Counts how often the program dies when the tracing half of the server is killed.
fn kill_tracers(times: u32) {
    for (budget, kinds) in [("5%", "sft"), ("none", "sft")] {
        let mut lost = 0;
        let mut program = Spinning::start(kinds);
        for _ in 0..times {
            let mut server = program.server_with(budget);
            let mut client = Client::connect(server.port);
            set_up(&mut client, &program);
            client.send(b"vCont;c");
            std::thread::sleep(Duration::from_millis(60));
            send_signal(server.tracer(), 9);
            server.wait();
            // A trap that was run into before it was mended kills, which takes its time.
            let deadline = Instant::now() + Duration::from_millis(200);
            while program.ended().is_none() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if program.ended().is_some() {
                lost += 1;
                program = Spinning::start(kinds);
            }
        }
        println!(
            "tracer killed {times} times, eight threads at one tracepoint, budget {budget}: program lost {lost} times"
        );
    }
}
