//! Breakpoints with commands: the server prints, and no thread stops.

use std::collections::HashMap;
use std::path::Path;

use super::client::{Client, stopped};
use super::gdb::{assert_order, gdb};
use super::programs::{address, build};
use super::server::{Server, eventually, send_signal};
use super::target::{ARGUMENT, POINTER, STUB, is_emulated, kind, many};

/// Commands that print `*count` at the entry of `hit(long *count)`: reg, ref, channel and function,
/// printf, end.
fn prints(persist: u32) -> String {
    let reference = if POINTER == 8 { 0x1a } else { 0x19 };
    let format = b"count %ld\\n\0";
    let digits: String = format.iter().map(|byte| format!("{byte:02x}")).collect();
    let length = format.len();
    let code = format!("2600{ARGUMENT:02x}{reference:02x}220022003401{length:04x}{digits}27");
    format!("cmds:{persist},X{:x},{code}", code.len() / 2)
}

/// The condition that `*count` is odd: reg, ref, const8 1, bit_and, end.
fn odd() -> String {
    let reference = if POINTER == 8 { 0x1a } else { 0x19 };
    format!("X8,2600{ARGUMENT:02x}{reference:02x}22010f27;")
}

fn plant(client: &mut Client, at: u64, terms: &str) {
    let packet = format!("Z0,{at:x},{};{terms}", kind());
    assert_eq!(client.ask(&packet), "OK", "{packet}");
}

/// Number of times that each count was printed, and the other lines.
fn lines(output: &str) -> (HashMap<u32, u32>, Vec<&str>) {
    let mut counts = HashMap::new();
    let mut others = Vec::new();
    for line in output.lines() {
        match line.strip_prefix("count ") {
            Some(count) => *counts.entry(count.parse().unwrap()).or_default() += 1,
            None => others.push(line),
        }
    }
    (counts, others)
}

#[test]
fn eight_threads_print_every_hit() {
    let program = build("hits", &["-no-pie"]);
    let rounds = if is_emulated() { 30 } else { 1000 };
    let hit = address(&program, "hit");
    // A failing command is abandoned, and the next one runs: const8 0, ref8, end.
    let faulty = format!("cmds:0,X4,22001727{}", &prints(0)["cmds:0,".len()..]);
    for (terms, step) in [(prints(0), 1), (odd() + &prints(0), 2), (faulty, 1)] {
        let (mut server, mut client) = Server::run(&program, &["8", &rounds.to_string()]);
        assert!(client.supported.contains("BreakpointCommands+"));
        plant(&mut client, hit, &terms);
        assert!(client.go().starts_with("W00"));
        drop(client);
        server.wait();
        let output = server.output();
        let expected = (step - 1..rounds).step_by(step as usize);
        let expected: HashMap<u32, u32> = expected.map(|count| (count, 8)).collect();
        let total = format!("total {}", 8 * rounds);
        assert_eq!(lines(&output), (expected, vec![&total[..]]), "{terms}");
    }
}

/// To get reports, the client inserts the breakpoint again without commands.
#[test]
fn the_last_list_of_commands_applies() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["1", "20"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    plant(&mut client, hit, &prints(0));
    client.plant(hit);
    assert!(client.go().starts_with("T05swbreak:;"));
    plant(&mut client, hit, &prints(0));
    assert!(client.go().starts_with("W00"));
    drop(client);
    server.wait();
    // The first hit was a stop.
    let expected = (1..20).map(|count| (count, 1)).collect();
    assert_eq!(lines(&server.output()), (expected, vec!["total 20"]));
}

fn serve(program: &Path, rounds: u32) -> (Server, Client, u32) {
    let program = program.to_str().unwrap();
    let server = Server::start(&[":0", program, "2", &rounds.to_string()]);
    let mut client = Client::connect(server.port);
    let (pid, _) = stopped(&client.ask("?"));
    (server, client, pid)
}

#[test]
fn commands_persist_on_request() {
    let program = build("hits", &["-no-pie"]);
    let hit = address(&program, "hit");
    let rounds = many(500);
    for persist in [0, 1] {
        let (mut server, mut client, _) = serve(&program, rounds);
        plant(&mut client, hit, &prints(persist));
        assert_eq!(client.ask("D"), "OK");
        drop(client);
        assert!(server.wait().success());
        let output = server.output();
        let (counts, others) = lines(&output);
        assert_eq!(others, [format!("total {}", 2 * rounds)]);
        let expected = (0..persist * rounds).map(|count| (count, 2)).collect();
        assert_eq!(counts, expected);
    }
}

/// Persistent commands end when a client takes control of the program again, and with the server.
#[test]
fn persistent_commands_end_with_the_next_controller() {
    let program = build("hits", &["-no-pie"]);
    let hit = address(&program, "hit");
    for again in [true, false] {
        let (mut server, mut client, pid) = serve(&program, 1_000_000_000);
        let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
        let text = || {
            let mut text = [0; 4];
            std::os::unix::fs::FileExt::read_exact_at(&memory, &mut text, hit).unwrap();
            text
        };
        let before = text();
        plant(&mut client, hit, &prints(1));
        assert_eq!(client.ask("D"), "OK");
        drop(client);
        assert_ne!(text(), before);
        if again {
            let mut client = Client::connect(server.port);
            assert!(client.ask("?").starts_with('T'));
            assert_eq!(text(), before);
            assert_eq!(client.ask("D"), "OK");
        } else {
            server.signal(15);
        }
        eventually("it is let go", || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            status.unwrap().contains("TracerPid:\t0\n")
        });
        assert_eq!(text(), before);
        send_signal(pid, 9);
        server.wait();
    }
}

/// In one style gdb prints with the program's C functions, in the other the server prints.
#[test]
fn gdb_prints_the_same() {
    let program = build("hits", &["-O0"]);
    let formats = [
        (
            r"%d|%5d|%-5d|%05d|%+d|%i\n",
            "*count, *count, *count, *count, *count, -3",
        ),
        (r"%ld %lu %lx %#lo\n", "*count, -1L, -2L, 8L"),
        (r"%x %X %#x %08x %.4x\n", "255, 255, 255, 255, 255"),
        (r"%lld %llu\n", "-5000000000LL, 5000000000LL"),
        (r"%p %p %%\n", "count, (void *) 0"),
        (r#"\ta\"b\\c\n"#, ""),
    ];
    let mut texts = Vec::new();
    for style in ["gdb", "agent"] {
        let mut script = format!(
            "set disable-randomization on\ntarget remote | {STUB} - {} 1 3\nbreak main\ncontinue\ndelete\n\
             set dprintf-style {style}\n",
            program.display()
        );
        for (format, values) in formats {
            let comma = if values.is_empty() { "" } else { ", " };
            script += &format!("dprintf hit,\"= {format}\"{comma}{values}\n");
        }
        script += "continue\n";
        let text = gdb(&program, &script);
        assert_order(&text, &["exited normally"]);
        let printed: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with("= "))
            .map(str::to_owned)
            .collect();
        assert!(!printed.is_empty(), "{text}");
        texts.push(printed);
    }
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[0].len(), 3 * formats.len());
}
