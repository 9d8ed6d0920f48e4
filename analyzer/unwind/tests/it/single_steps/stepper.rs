//! Single-steps through a program as a client of a debug server: gdbserver, or QEMU's.
//!
//! Not by gdb, which unwinds at each step, so that steps take ten times as long.

use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use unspool_image::Arch;

use super::Machine;
use crate::tools::output;

/// Number of bytes that are read above the stack pointer, and on either side of the caller's.
const NEAR: u64 = 256;

/// A stop after a step.
pub(super) struct Step {
    pub(super) registers: HashMap<String, u64>,
    pub(super) memory: Vec<(u64, Vec<u8>)>,
    /// The address behind the call, and the stack pointer before it.
    pub(super) caller: (u64, u64),
}

/// The addresses of the calls that objdump prints.
fn call_sites(machine: &Machine, program: &Path) -> BTreeSet<u64> {
    let mut objdump = Command::new(format!("{}objdump", machine.tools));
    let text = output(objdump.args(["-d", "--no-show-raw-insn"]).arg(program));
    let call = |line: &str| {
        let (address, rest) = line.split_once(':')?;
        let mnemonic = rest.split_whitespace().next()?;
        // ble, blt and bls are branches.
        let mnemonic = mnemonic.split('.').next()?;
        let is_call = mnemonic.starts_with("call")
            || mnemonic.starts_with("bl") && !["ble", "blt", "bls"].contains(&mnemonic);
        is_call.then(|| u64::from_str_radix(address.trim(), 16).ok())?
    };
    text.lines().filter_map(call).collect()
}

/// The steps from the first call to the end of the program's first function.
pub(super) fn steps(machine: &Machine, program: &Path) -> Vec<Step> {
    let sites = call_sites(machine, program);
    let mut server = Server::start(machine, program);
    let mut calls: Vec<(u64, u64)> = Vec::new();
    let mut steps = Vec::new();
    let mut before: Option<(u64, u64)> = None;
    loop {
        let registers = server.registers(machine.arch);
        let (pc, sp) = place(machine.arch, &registers);
        if let Some((from, sp_before)) = before
            && sites.contains(&from)
        {
            let behind = match machine.arch {
                Arch::X86_64 if sp + 8 == sp_before => server.word(sp),
                Arch::X86_64 => 0,
                _ => registers[link(machine.arch)] & !1,
            };
            // A conditional call may not have been one.
            if pc != behind && behind > from && behind <= from + 7 {
                calls.push((behind, sp_before));
            }
        }
        while calls.last() == Some(&(pc, sp)) {
            calls.pop();
        }
        let Some(caller) = calls.last().copied() else {
            if steps.is_empty() {
                before = Some((pc, sp));
                server.step();
                continue;
            }
            break;
        };
        let mut memory = vec![(sp, server.memory(sp, NEAR))];
        if caller.1 - sp > NEAR {
            let from = caller.1 - NEAR;
            memory.push((from, server.memory(from, 2 * NEAR)));
        }
        steps.push(Step {
            registers,
            memory,
            caller,
        });
        before = Some((pc, sp));
        server.step();
    }
    steps
}

fn link(arch: Arch) -> &'static str {
    match arch {
        Arch::Arm => "lr",
        _ => "x30",
    }
}

/// The program counter and the stack pointer.
fn place(arch: Arch, registers: &HashMap<String, u64>) -> (u64, u64) {
    match arch {
        Arch::X86_64 => (registers["rip"], registers["rsp"]),
        _ => (registers["pc"], registers["sp"]),
    }
}

/// Names and sizes of the first registers in the answer to `g`.
fn layout(arch: Arch) -> Vec<(String, usize)> {
    let words = |names: &[&str], size| -> Vec<(String, usize)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), size))
            .collect()
    };
    let numbered = |stem: char, numbers: std::ops::Range<u32>, size| -> Vec<(String, usize)> {
        numbers
            .map(|number| (format!("{stem}{number}"), size))
            .collect()
    };
    match arch {
        Arch::X86_64 => {
            let names = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"];
            [
                words(&names, 8),
                numbered('r', 8..16, 8),
                words(&["rip"], 8),
            ]
            .concat()
        }
        Arch::Aarch64 => [numbered('x', 0..31, 8), words(&["sp", "pc"], 8)].concat(),
        // The registers of the obsolete FPA unit come before the status.
        _ => [
            numbered('r', 0..13, 4),
            words(&["sp", "lr", "pc"], 4),
            words(&["unused"], 8 * 12 + 4),
            words(&["cpsr"], 4),
        ]
        .concat(),
    }
}

/// A debug server with the program stopped at its first instruction.
struct Server {
    process: Child,
    stream: TcpStream,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(machine: &Machine, program: &Path) -> Server {
        let free = TcpListener::bind("127.0.0.1:0").expect("port");
        let port = free.local_addr().expect("port").port();
        drop(free);
        let address = match machine.arch {
            Arch::X86_64 => format!("127.0.0.1:{port}"),
            _ => port.to_string(),
        };
        let process = Command::new(machine.server[0])
            .args(&machine.server[1..])
            .arg(address)
            .arg(program)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a server");
        let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
        let wait = || std::thread::sleep(Duration::from_millis(20));
        let stream = (0..500).find_map(|_| {
            connect().or_else(|| {
                wait();
                None
            })
        });
        let stream = stream.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("a limit");
        let mut server = Server { process, stream };
        server.ask("qSupported");
        server.ask("?");
        server
    }

    /// Sends a packet, and returns the answer without its run-length encoding.
    fn ask(&mut self, packet: &str) -> Vec<u8> {
        let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
        let packet = format!("${packet}#{sum:02x}");
        self.stream.write_all(packet.as_bytes()).expect("written");
        let mut answer = Vec::new();
        let mut chunk = [0; 16384];
        while !(answer.len() > 3 && answer[answer.len() - 3] == b'#') {
            let count = self.stream.read(&mut chunk).expect("an answer");
            assert!(count > 0, "the server ended");
            answer.extend_from_slice(&chunk[..count]);
        }
        self.stream.write_all(b"+").expect("written");
        let start = answer.iter().position(|byte| *byte == b'$').expect("$");
        let body = &answer[start + 1..answer.len() - 3];
        let mut plain: Vec<u8> = Vec::new();
        let mut bytes = body.iter();
        while let Some(byte) = bytes.next() {
            match (byte, plain.last()) {
                (b'*', Some(last)) => {
                    let more = bytes.next().expect("a count") - 29;
                    plain.extend(std::iter::repeat_n(*last, more.into()));
                }
                _ => plain.push(*byte),
            }
        }
        plain
    }

    fn step(&mut self) {
        let answer = self.ask("s");
        assert!(
            matches!(answer[0], b'S' | b'T'),
            "{}",
            String::from_utf8_lossy(&answer)
        );
    }

    fn registers(&mut self, arch: Arch) -> HashMap<String, u64> {
        let bytes = from_hex(&self.ask("g"));
        let mut at = 0;
        let mut registers = HashMap::new();
        for (name, size) in layout(arch) {
            let value = bytes[at..at + size].iter().take(8).rev();
            let value = value.fold(0, |value, byte| value << 8 | u64::from(*byte));
            registers.insert(name, value);
            at += size;
        }
        registers
    }

    /// The memory up to the end of the stack, at most this much.
    fn memory(&mut self, address: u64, mut size: u64) -> Vec<u8> {
        loop {
            let bytes = from_hex(&self.ask(&format!("m{address:x},{size:x}")));
            if !bytes.is_empty() || size < 16 {
                return bytes;
            }
            size /= 2;
        }
    }

    fn word(&mut self, address: u64) -> u64 {
        let bytes = self.memory(address, 8);
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    }
}

/// The bytes, or none if the server answers with an error.
fn from_hex(digits: &[u8]) -> Vec<u8> {
    let pairs = digits.chunks_exact(2);
    let pairs = pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    pairs
        .collect::<Option<_>>()
        .filter(|_| digits.len().is_multiple_of(2))
        .unwrap_or_default()
}
