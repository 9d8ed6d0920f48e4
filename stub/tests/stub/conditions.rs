//! Breakpoints with conditions: only hits with a true condition stop a thread, and the program's
//! results are right.

use std::collections::HashMap;

use super::client::{Client, stopped};
use super::gdb::{assert_order, gdb};
use super::programs::{address, build};
use super::server::Server;
use super::target::{ARGUMENT, PC, POINTER, STUB, kind, many};

/// The condition `*count == number` at the entry of `hit(long *count)`: reg, ref, const16, equal,
/// end.
fn counts(number: u16) -> String {
    let reference = if POINTER == 8 { 0x1a } else { 0x19 };
    format!("X9,2600{ARGUMENT:02x}{reference:02x}23{number:04x}1327")
}

/// A condition that reads unmapped memory: const8 0, ref8, end.
const UNREADABLE: &str = "X4,22001727";
/// A false condition: const8 0, end.
const FALSE: &str = "X3,220027";
const TRUE: &str = "X3,220127";

fn plant(client: &mut Client, at: u64, conditions: &str) {
    let packet = format!("Z0,{at:x},{};{conditions}", kind());
    assert_eq!(client.ask(&packet), "OK", "{packet}");
}

/// Continues to the end. Returns the number of stops per thread.
fn stops(client: &mut Client, at: u64) -> HashMap<u32, usize> {
    let mut stops = HashMap::new();
    loop {
        let stop = client.go();
        if !stop.starts_with('T') {
            assert!(stop.starts_with("W00"), "{stop}");
            return stops;
        }
        assert!(stop.starts_with("T05swbreak:;"), "{stop}");
        assert_eq!(client.register(PC), at);
        *stops.entry(stopped(&stop).1).or_default() += 1;
    }
}

#[test]
fn eight_threads_stop_at_true_conditions() {
    let program = build("hits", &["-no-pie"]);
    let rounds = many(3000);
    let hit = address(&program, "hit");
    let both = counts(70) + &counts(90);
    for (conditions, expected) in [(counts(70), 1), (both, 2), (FALSE.to_owned(), 0)] {
        let (mut server, mut client) = Server::run(&program, &["8", &rounds.to_string()]);
        assert!(client.supported.contains("ConditionalBreakpoints+"));
        plant(&mut client, hit, &conditions);
        let stops = stops(&mut client, hit);
        let each: Vec<usize> = stops.values().copied().collect();
        let all = if expected == 0 { 0 } else { 8 };
        assert_eq!(each, vec![expected; all], "{conditions}");
        drop(client);
        server.wait();
        assert_eq!(server.output(), format!("total {}\n", 8 * rounds));
    }
}

#[test]
fn the_last_list_of_conditions_applies() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["1", "200"]);
    let hit = address(&program, "hit");
    let count = |client: &mut Client| {
        assert!(client.go().starts_with("T05swbreak:;"));
        let at = client.register(ARGUMENT);
        let bytes = client.ask(&format!("m{at:x},1"));
        u32::from_str_radix(&bytes, 16).unwrap()
    };
    plant(&mut client, hit, &counts(20));
    assert_eq!(count(&mut client), 20);
    plant(&mut client, hit, &counts(40));
    assert_eq!(count(&mut client), 40);
    // On an error the client must decide, so the thread stops.
    plant(&mut client, hit, &(FALSE.to_owned() + UNREADABLE));
    assert_eq!(count(&mut client), 41);
    client.plant(hit);
    assert_eq!(count(&mut client), 42);
    assert!(
        client
            .ask(&format!("Z0,{hit:x},{};X9,22", kind()))
            .starts_with('E')
    );
    client.lift(hit);
    assert!(client.go().starts_with("W00"));
}

/// A step onto a breakpoint stops whatever its condition is. A step from it executes the
/// instruction there. A range step stops only at true conditions.
#[test]
fn steps_onto_and_from_conditional_breakpoints() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["1", "200"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    let stop = client.go();
    let (pid, tid) = stopped(&stop);
    let step = |client: &mut Client, action: &str| {
        let stop = client.ask(&format!("vCont;{action}:p{pid:x}.{tid:x}"));
        assert!(stop.starts_with("T05"), "{stop}");
        (stop.contains("swbreak"), client.register(PC))
    };
    let (_, second) = step(&mut client, "s");
    let (_, third) = step(&mut client, "s");
    client.lift(hit);
    for at in [second, third] {
        plant(&mut client, at, FALSE);
    }
    plant(&mut client, hit, &counts(50));
    assert!(client.go().starts_with("T05swbreak:;"));
    assert_eq!(step(&mut client, "s"), (false, second));
    assert_eq!(step(&mut client, "s"), (false, third));
    assert_ne!(step(&mut client, "s").1, third);
    plant(&mut client, hit, &counts(60));
    assert!(client.go().starts_with("T05swbreak:;"));
    // From `hit` on, past the other two.
    let range = format!("r{hit:x},{:x}", third + 1);
    let (broke, after) = step(&mut client, &range);
    assert!(!broke && after != second && after != third, "{after:x}");
    plant(&mut client, hit, &counts(70));
    assert!(client.go().starts_with("T05swbreak:;"));
    plant(&mut client, third, TRUE);
    assert_eq!(step(&mut client, &range), (true, third));
}

/// In non-stop mode a hit with a true condition stops no other thread either.
#[test]
fn non_stop() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["4", "400"]);
    let hit = address(&program, "hit");
    assert_eq!(client.ask("QNonStop:1"), "OK");
    assert!(client.ask("?").starts_with("T05"));
    assert_eq!(client.ask("vStopped"), "OK");
    plant(&mut client, hit, &counts(200));
    assert_eq!(client.ask("vCont;c"), "OK");
    let mut seen = 0;
    loop {
        let mut stop = client.told("Stop");
        while stop != "OK" {
            if stop.starts_with('W') {
                assert_eq!(seen, 4);
                drop(client);
                server.wait();
                assert_eq!(server.output(), "total 1600\n");
                return;
            }
            if stop.contains("swbreak") {
                seen += 1;
            }
            let (pid, tid) = stopped(&stop);
            stop = client.ask("vStopped");
            assert_eq!(client.ask(&format!("vCont;c:p{pid:x}.{tid:x}")), "OK");
        }
    }
}

#[test]
fn gdb_sends_conditions_to_the_server() {
    let program = build("hits", &["-no-pie"]);
    let text = gdb(
        &program,
        &format!(
            "target remote | {STUB} - {} 4 500\nset breakpoint condition-evaluation target\n\
             break hit if *count == 123\ncontinue\ncontinue\ncontinue\ncontinue\ninfo breakpoints\n\
             condition 1 *count == 123 || *count == 450\ncontinue\nprint *count\ndelete\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "hit Breakpoint 1",
            "hit Breakpoint 1",
            "hit Breakpoint 1",
            "hit Breakpoint 1",
            "stop only if *count == 123 (target evals)",
            "breakpoint already hit 4 times",
            "hit Breakpoint 1",
            "$1 = 450",
            "exited normally",
        ],
    );
    assert!(!text.contains("does not support"), "{text}");
}

/// Children that gdb debugs have their parent's conditional breakpoints. Other children do not stop
/// at them.
#[test]
fn gdb_follows_children_with_conditional_breakpoints() {
    let program = build("family", &["-O0"]);
    for kind in ["fork", "vfork"] {
        for follow in ["child", "parent"] {
            let text = gdb(
                &program,
                &format!(
                    "set follow-fork-mode {follow}\ntarget remote | {STUB} - {} {kind}\n\
                     break in_child if $sp == 0\nbreak in_child if $sp != 0\nbreak in_parent if status == 0\n\
                     break in_parent if status == 0x300\ncontinue\nbt 1\ncontinue\n",
                    program.display()
                ),
            );
            let (end, stop) = match follow {
                "child" => ("exited with code 03", "Breakpoint 2, in_child"),
                _ => ("exited normally", "Breakpoint 4, in_parent"),
            };
            assert_order(&text, &[stop, end]);
            for never in ["Breakpoint 1, ", "Breakpoint 3, "] {
                assert!(!text.contains(never), "{kind} {follow}: {text}");
            }
        }
    }
}
