//! Traps in text that the program changes, unloads or replaces with data. The program must run as
//! if there were no traps.

use super::client::{Client, field, little_endian, stopped};
use super::programs::{address, build};
use super::server::Server;
use super::target::{self, ARGUMENT, PC, POINTER};
use super::tracepoints::{define, hits};

struct Changing {
    server: Server,
    client: Client,
    place: u64,
    look: u64,
}

impl Changing {
    fn run(arguments: &[&str]) -> Changing {
        let program = build("text", &["-no-pie", "-ldl"]);
        let (server, mut client) = Server::run(&program, arguments);
        let look = address(&program, "look");
        client.plant(look);
        Changing {
            server,
            client,
            place: address(&program, "place"),
            look,
        }
    }

    /// Continues to the next call of look(). Returns the stage and the process.
    fn next(&mut self) -> (u64, u32) {
        let stop = self.client.go();
        assert!(field(&stop, "swbreak").is_some(), "{stop}");
        (self.client.register(ARGUMENT), stopped(&stop).0)
    }

    /// Address of the function at present.
    fn function(&mut self) -> u64 {
        let read = format!("m{:x},{POINTER:x}", self.place);
        let place = little_endian(&self.client.ask(&read));
        target::code(place)
    }

    fn finish(mut self) {
        self.client.lift(self.look);
        assert_eq!(self.client.ask("D"), "OK");
        assert!(self.server.wait().success());
        assert_eq!(self.server.output(), "bad 0\n");
    }
}

/// Reads memory through the kernel, with traps visible.
fn in_memory(pid: u32, at: u64) -> [u8; 6] {
    let mut bytes = [0; 6];
    use std::os::unix::fs::FileExt;
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

/// The code `mov eax, value; ret`.
fn loads(value: u8) -> [u8; 6] {
    [0xb8, value, 0, 0, 0, 0xc3]
}

#[test]
fn an_instruction_is_changed_under_its_trap() {
    for trap in ["tracepoint", "breakpoint"] {
        let mut program = Changing::run(&[]);
        assert_eq!(program.next().0, 0);
        let at = program.function();
        if trap == "tracepoint" {
            define(&mut program.client, 1, at, &[]);
            assert_eq!(program.client.ask("QTStart"), "OK");
            let (stage, _) = program.next();
            assert_eq!((stage, hits(&mut program.client, 1, at)), (1, 100));
        } else {
            program.client.plant(at);
            for _ in 0..100 {
                let stop = program.client.go();
                assert!(field(&stop, "swbreak").is_some(), "{stop}");
                assert_eq!(program.client.register(PC), at);
            }
            assert_eq!(program.next().0, 1);
        }
        // The program overwrites the trap, which it may do.
        let (stage, pid) = program.next();
        assert_eq!((stage, in_memory(pid, at)), (2, loads(100)));
        assert_eq!(program.client.ask(&format!("m{at:x},6")), "b864000000c3");
        // The new instruction can be probed, too.
        if trap == "tracepoint" {
            define(&mut program.client, 2, at, &[]);
            assert_eq!(program.next().0, 3);
            assert_eq!(hits(&mut program.client, 2, at), 100);
            assert_eq!(in_memory(pid, at)[0], 0xcc);
            assert_eq!(program.client.ask("QTStop"), "OK");
        } else {
            program.client.lift(at);
            assert_eq!(program.next().0, 3);
        }
        assert_eq!(in_memory(pid, at), loads(100));
        program.finish();
    }
}

#[test]
fn traps_in_a_library_that_is_loaded_and_unloaded() {
    let library = build("there", &["-shared", "-fPIC"]);
    // Stage at which the trap is removed: without the library, with data in its place, or at the
    // end with all others.
    for (when, movable) in [1, 2, 3]
        .into_iter()
        .flat_map(|when| [(when, 0), (when, 5)])
    {
        let mut program = Changing::run(&["u", library.to_str().unwrap()]);
        let never = address(&build("text", &["-no-pie", "-ldl"]), "main");
        define(&mut program.client, 0xfff, never, &[]);
        assert_eq!(program.client.ask("QTStart"), "OK");
        let (mut number, mut at) = (0, 0);
        loop {
            let (stage, _) = program.next();
            match stage {
                0 => {
                    number += 1;
                    at = program.function();
                    match movable {
                        0 => define(&mut program.client, number, at, &[]),
                        _ => super::fast::define(&mut program.client, number, at, movable, &[]),
                    }
                }
                1 => assert_eq!(hits(&mut program.client, number, at), 10, "round {number}"),
                2 => {}
                _ => break,
            }
            if stage == when {
                assert_eq!(
                    program.client.ask(&format!("QTDisable:{number:x}:{at:x}")),
                    "OK"
                );
            }
        }
        assert_eq!(number, 20);
        assert_eq!(program.client.ask("QTStop"), "OK");
        program.finish();
    }
}

/// Removing a breakpoint that is gone with its library returns an error.
#[test]
fn a_breakpoint_in_a_library_that_is_gone() {
    let library = build("there", &["-shared", "-fPIC"]);
    let mut program = Changing::run(&["u", library.to_str().unwrap()]);
    let kind = target::kind();
    let mut at = 0;
    loop {
        match program.next().0 {
            0 => {
                at = program.function();
                program.client.plant(at);
                let stop = program.client.go();
                assert!(field(&stop, "swbreak").is_some(), "{stop}");
                assert_eq!(program.client.register(PC), at);
                for _ in 1..10 {
                    program.client.go();
                }
            }
            1 => {
                let answer = program.client.ask(&format!("z0,{at:x},{kind:x}"));
                assert!(answer.starts_with('E'), "{answer}");
                assert_eq!(program.client.ask(&format!("z0,{at:x},{kind:x}")), "OK");
            }
            2 => {}
            _ => break,
        }
    }
    program.finish();
}
