//! Large numbers of threads, processes and attaches. The program's own results show whether it was
//! disturbed.

use super::client::Client;
use super::programs::{address, build};
use super::server::{Server, eventually};
use super::spinning::Spinning;
use super::target::{EXIT_GROUP, SP, is_emulated, many};
use super::tracepoints::{define, hits};

/// Runs the program to its end with a tracepoint at `function`. Returns the number of hits and the
/// program's output.
fn traced(name: &str, arguments: &[&str], function: &str) -> (u64, String) {
    let program = build(name, &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, arguments);
    let at = address(&program, function);
    assert_eq!(client.ask("QPassSignals:14"), "OK");
    assert_eq!(client.ask("QTBuffer:circular:1"), "OK");
    define(&mut client, 1, at, &[&format!("M{SP:x},0,40")]);
    assert_eq!(client.ask("QTStart"), "OK");
    // Read the count before the program's end, because the trace ends with the program.
    let catch = format!("QCatchSyscalls:1;{EXIT_GROUP:x}");
    assert_eq!(client.ask(&catch), "OK");
    let end = client.go();
    assert!(end.contains("syscall_entry"), "{end}");
    let hits = hits(&mut client, 1, at);
    assert_eq!(client.ask("D"), "OK");
    server.wait();
    (hits, server.output())
}

#[test]
fn sixty_four_threads_at_one_probe() {
    let each = many(300);
    let (hits, output) = traced("hits", &["64", &each.to_string()], "hit");
    assert_eq!(hits, u64::from(64 * each));
    assert_eq!(output, format!("total {hits}\n"));
}

#[test]
fn thousands_of_short_threads() {
    let each = many(2500);
    let (hits, output) = traced("churn", &[&each.to_string()], "short_life");
    assert_eq!(hits, u64::from(4 * each));
    assert_eq!(output, format!("lived {hits}\n"));
}

#[test]
fn a_thousand_threads_at_one_probe() {
    let (hits, output) = traced("many", &["1000"], "wait_here");
    assert_eq!((hits, output.as_str()), (1000, "all gone\n"));
}

/// Stepping one thread over the trap at a system call halts all others and interrupts their calls.
/// Each interrupted call must continue, and must count as one call.
#[test]
fn threads_that_wait_in_a_probed_system_call() {
    let (hits, output) = traced("waiters", &["20"], "call");
    assert_eq!(output, format!("calls {hits}\n"));
}

#[test]
fn processes_that_fork_processes() {
    // Only the program itself, the root of each tree, is traced.
    let (hits, output) = traced("bomb", &["5"], "visited");
    assert_eq!((hits, output.as_str()), (5, "all 635\n"));
}

#[test]
fn a_thousand_rounds_of_attaching() {
    let mut program = Spinning::start("sft");
    let text = program.text();
    let rounds = if is_emulated() { 30 } else { 1000 };
    for round in 0..rounds {
        let mut server = program.server_with("none");
        let mut client = Client::connect(server.port);
        define(&mut client, 1, program.hit, &[&format!("M{SP:x},0,40")]);
        assert_eq!(client.ask("QTStart"), "OK");
        client.plant(program.never);
        if round % 2 == 0 {
            assert_eq!(client.ask("D"), "OK");
        }
        drop(client);
        server.wait();
        eventually("let go", || !program.traced());
        assert_eq!((program.ended(), program.text()), (None, text), "{round}");
    }
    program.finish();
}
