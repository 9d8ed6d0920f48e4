//! Compares displaced and emulated instructions with the processor. Each test single-steps an
//! instruction at its address, then executes it in the other way. Registers, flags, vector state,
//! memory and signal must be equal. Another test compares instruction lengths with objdump's.

use std::process::Command;

use super::test_process::{self, Words};
use super::words::{set_word, word};
use super::x86_64::{displace, emulate, instruction};
use crate::sys::memory::Memory;
use crate::sys::wait::{Status, wait};
use crate::sys::{Tid, ptrace};

const RAX: usize = 10;
const RCX: usize = 11;
const RSP: usize = 19;
const RIP: usize = 16;
const FLAGS: usize = 18;
/// Registers that an instruction may use.
const FREE: [usize; 15] = [10, 11, 12, 5, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0];
const STATUS_FLAGS: u64 = 0xcd5;

/// A program stopped at its first instruction, in which the tests execute code.
struct TestProcess {
    tid: Tid,
    memory: Memory,
    /// Address of the instruction under test.
    at: u64,
    slot: u64,
    /// Address of memory that instructions may use.
    data: u64,
    general: Vec<u8>,
    extended: Vec<u8>,
}

/// The state that an instruction can change.
#[derive(PartialEq, Eq, Debug, Clone)]
struct Outcome {
    signal: i32,
    general: Vec<u64>,
    extended: Vec<u8>,
    data: Vec<u8>,
}

const DATA: usize = 4096;
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

impl Outcome {
    fn must_be(&self, expected: &Outcome, what: &str) {
        assert_eq!(self.signal, expected.signal, "{what}");
        for (index, pair) in self.general.iter().zip(&expected.general).enumerate() {
            // The resume flag does not depend on the instruction (SDM vol. 3, 17.3.1.1).
            let mask = if index == FLAGS { !(1 << 16) } else { !0 };
            let (found, expected) = (pair.0 & mask, pair.1 & mask);
            assert_eq!(
                found, expected,
                "{what}: register {index}: {found:#x}, not {expected:#x}"
            );
        }
        for (index, pair) in self.extended.iter().zip(&expected.extended).enumerate() {
            assert_eq!(pair.0, pair.1, "{what}: vector state, byte {index}");
        }
        assert!(self.data == expected.data, "{what}: memory");
    }
}

impl TestProcess {
    fn new() -> TestProcess {
        let tid = test_process::start("/bin/true");
        let (pc, sp) = test_process::pc_and_sp(tid);
        TestProcess {
            tid,
            memory: Memory::open(tid).unwrap(),
            at: (pc & !0xfff) + 0x100,
            slot: (pc & !0xfff) + 0x800,
            data: (sp & !0xfff) - 2 * DATA as u64,
            general: ptrace::register_set(tid, 1, 27 * 8).unwrap(),
            extended: ptrace::register_set(tid, 0x202, 16384).unwrap(),
        }
    }

    fn set(&self, words: &[u64], pc: u64, data: &[u8]) {
        let mut general = self.general.clone();
        for (index, word) in words.iter().enumerate() {
            set_word(&mut general, index, *word);
        }
        set_word(&mut general, RIP, pc);
        // Prevents the kernel from repeating a system call.
        set_word(&mut general, 15, u64::MAX);
        self.memory.write(self.data, data).unwrap();
        ptrace::set_register_set(self.tid, 1, &general).unwrap();
        ptrace::set_register_set(self.tid, 0x202, &self.extended).unwrap();
    }

    fn step(&self) -> i32 {
        ptrace::step(self.tid, 0).unwrap();
        match wait(Some(self.tid), true) {
            Ok(Some((_, Status::Signal(signal)))) => signal,
            other => panic!("{other:?}"),
        }
    }

    fn pc(&self) -> u64 {
        word(&ptrace::register_set(self.tid, 1, 27 * 8).unwrap(), RIP)
    }

    fn outcome(&self, signal: i32) -> Outcome {
        let general = ptrace::register_set(self.tid, 1, 27 * 8).unwrap();
        let mut data = vec![0; DATA];
        self.memory.read(self.data, &mut data).unwrap();
        let mut extended = ptrace::register_set(self.tid, 0x202, 16384).unwrap();
        // Addresses of the last x87 instruction and its operand (SDM vol. 1, 8.1.8).
        extended[6..24].fill(0);
        // Mask of the parts not in their initial state: processors may set more bits (13.6).
        extended[512..520].fill(0);
        Outcome {
            signal,
            general: (0..27).map(|index| word(&general, index)).collect(),
            extended,
            data,
        }
    }

    /// Executes `code` in both ways. Returns the processor's outcome at the original address, or
    /// `None` if the instruction was not executed.
    fn compare(&self, code: &[u8], words: &[u64], data: &[u8]) -> Option<Outcome> {
        let decoded = instruction::decode(code)?;
        if decoded.place == instruction::Place::Fixed {
            return None;
        }
        let code = &code[..decoded.length];
        let mut place = code.to_vec();
        place.resize(16, 0x90);
        self.memory.write(self.at, &place).unwrap();
        self.set(words, self.at, data);
        let expected = self.outcome_after_step();

        self.set(words, self.at, data);
        let mut emulated = ptrace::register_set(self.tid, 1, 27 * 8).unwrap();
        let emulates = emulate(code, &mut emulated, &Words(&self.memory));
        if emulates {
            ptrace::set_register_set(self.tid, 1, &emulated).unwrap();
            let found = self.outcome(libc::SIGTRAP);
            found.must_be(&expected, &format!("emulated {code:x?} of {words:x?}"));
        }
        let Some(displaced) = displace(code, self.at, self.slot, 1) else {
            let gone = expected.signal == libc::SIGTRAP;
            assert!(
                emulates || !gone,
                "neither emulated nor displaced: {code:x?}"
            );
            return Some(expected);
        };
        assert_eq!(displaced.length, code.len());
        self.memory.write(self.slot, &displaced.code).unwrap();
        self.set(words, self.slot, data);
        let mut found = self.outcome_after_step();
        let pc = &mut found.general[RIP];
        if *pc == self.slot {
            *pc = self.at;
        } else if *pc == self.slot + code.len() as u64 {
            assert_eq!(self.step(), libc::SIGTRAP);
            *pc = self.pc();
        }
        found.must_be(&expected, &format!("displaced {code:x?} of {words:x?}"));
        Some(expected)
    }

    fn outcome_after_step(&self) -> Outcome {
        let signal = self.step();
        self.outcome(signal)
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}

impl TestProcess {
    /// Registers that mostly point into the data, small counters, random flags.
    fn random_state(&self, random: &mut Random) -> (Vec<u64>, Vec<u8>) {
        let mut words: Vec<u64> = (0..27).map(|index| word(&self.general, index)).collect();
        for index in FREE {
            words[index] = match random.below(4) {
                0 => random.next(),
                _ => self.data + 1024 + random.below(2048),
            };
        }
        words[RCX] = random.below(4);
        words[RSP] = self.data + 2048 + 8 * random.below(64);
        words[FLAGS] = 0x202 | random.next() & STATUS_FLAGS;
        let data = (0..DATA).map(|_| random.byte()).collect();
        (words, data)
    }
}

#[test]
fn every_class_of_instruction() {
    let process = TestProcess::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    // The text of each is the GNU assembler's.
    let codes: &[&[u8]] = &[
        &[0xf3, 0x0f, 0x1e, 0xfa],                         // endbr64
        &[0x55],                                           // push %rbp
        &[0x41, 0x57],                                     // push %r15
        &[0x54],                                           // push %rsp
        &[0x48, 0x89, 0xe5],                               // mov %rsp,%rbp
        &[0xb8, 0xe7, 0x00, 0x00, 0x00],                   // mov $0xe7,%eax
        &[0x48, 0x83, 0xec, 0x18],                         // sub $0x18,%rsp
        &[0x48, 0x83, 0xec, 0x80],                         // sub $-0x80,%rsp
        &[0x48, 0x81, 0xec, 0x98, 0x01, 0x00, 0x00],       // sub $0x198,%rsp
        &[0x48, 0x8d, 0x44, 0x9d, 0x10],                   // lea 0x10(%rbp,%rbx,4),%rax
        &[0x48, 0x8d, 0x3d, 0x10, 0x00, 0x00, 0x00],       // lea 0x10(%rip),%rdi
        &[0x48, 0x8d, 0x04, 0x25, 0x10, 0x00, 0x00, 0x00], // lea 0x10,%rax
        &[0x4a, 0x8d, 0x04, 0x20],                         // lea (%rax,%r12,1),%rax
        &[0x48, 0x8d, 0x04, 0x24],                         // lea (%rsp),%rax
        &[0x48, 0x8b, 0x05, 0x01, 0x00, 0x00, 0x00],       // mov 0x1(%rip),%rax
        &[0x80, 0x3d, 0x00, 0x00, 0x00, 0x00, 0x07],       // cmpb $7,0x0(%rip)
        &[0xc5, 0xf9, 0x6f, 0x05, 0x08, 0, 0, 0],          // vmovdqa 0x8(%rip),%xmm0
        &[0xf3, 0x0f, 0x6f, 0x05, 0x02, 0, 0, 0],          // movdqu 0x2(%rip),%xmm0
        &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0],    // mov %fs:0x28,%rax
        &[0xc3],                                           // ret
        &[0xc2, 0x08, 0x00],                               // ret $8
        &[0xc9],                                           // leave
        &[0xe8, 0x20, 0x00, 0x00, 0x00],                   // call .+0x25
        &[0x66, 0x66, 0x48, 0xe8, 0x20, 0x00, 0x00, 0x00], // data16 rex.W call .+0x28
        &[0xff, 0xd0],                                     // call *%rax
        &[0x41, 0xff, 0xd4],                               // call *%r12
        &[0xff, 0x55, 0x08],                               // call *0x8(%rbp)
        &[0xff, 0x14, 0xdd, 0x10, 0x00, 0x00, 0x00],       // call *0x10(,%rbx,8)
        &[0xff, 0x15, 0x02, 0x00, 0x00, 0x00],             // call *0x2(%rip)
        &[0xff, 0x54, 0x24, 0x10],                         // call *0x10(%rsp)
        &[0xff, 0xe2],                                     // jmp *%rdx
        &[0xff, 0x25, 0x02, 0x00, 0x00, 0x00],             // jmp *0x2(%rip)
        &[0xe9, 0x10, 0x00, 0x00, 0x00],                   // jmp .+0x15
        &[0xeb, 0xfe],                                     // jmp .
        &[0xe2, 0x10],                                     // loop .+0x12
        &[0xe1, 0x10],                                     // loope .+0x12
        &[0xe0, 0x10],                                     // loopne .+0x12
        &[0xe3, 0x10],                                     // jrcxz .+0x12
        &[0x67, 0xe3, 0x10],                               // jecxz .+0x13
        &[0xf2, 0xe9, 0x10, 0x00, 0x00, 0x00],             // bnd jmp .+0x16
        &[0xf3, 0xa4],                                     // rep movsb
        &[0xf3, 0x48, 0xab],                               // rep stos %rax
        &[0xf0, 0x48, 0x0f, 0xb1, 0x55, 0x00],             // lock cmpxchg %rdx,0x0(%rbp)
        &[0xf0, 0x0f, 0xc7, 0x4d, 0x08],                   // lock cmpxchg8b 0x8(%rbp)
        &[0xd9, 0x45, 0x00],                               // flds 0x0(%rbp)
        &[0x0f, 0x29, 0x45, 0x00],                         // movaps %xmm0,0x0(%rbp): may fault
        &[0x0f, 0x0b],                                     // ud2: fixed
        &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],             // movabs $...,%rax
        &[0x48, 0xa1, 1, 2, 3, 4, 5, 6, 7, 0],             // movabs ...,%rax: faults
        &[0xc8, 0x10, 0x00, 0x01],                         // enter $16,$1
        &[0x0f, 0xa2],                                     // cpuid
        &[0x8f, 0x45, 0x08],                               // pop 0x8(%rbp)
        &[0xff, 0x75, 0x08],                               // push 0x8(%rbp)
    ];
    for code in codes {
        for _ in 0..12 {
            let (mut words, data) = process.random_state(&mut random);
            words[4] = process.data + 1024 + 8 * random.below(128);
            process.compare(code, &words, &data);
        }
    }
    for condition in 0..16 {
        for _ in 0..16 {
            let (words, data) = process.random_state(&mut random);
            process.compare(&[0x70 | condition, 0x10], &words, &data);
            process.compare(&[0x0f, 0x80 | condition, 0x10, 1, 0, 0], &words, &data);
        }
    }
}

#[test]
fn random_instructions() {
    let process = TestProcess::new();
    let mut random = Random(SEED);
    let mut executed = 0;
    for _ in 0..8000 {
        let mut code = Vec::new();
        if random.below(8) == 0 {
            let prefixes = [0x66, 0xf2, 0xf3, 0x64, 0x67, 0xf0];
            code.push(prefixes[random.below(6) as usize]);
        }
        if random.below(2) == 0 {
            code.push(0x40 | random.byte() & 15);
        }
        match random.below(8) {
            0 => {
                // VEX, three bytes, 128 or 256 bits.
                code.clear();
                let map = 1 + random.below(3) as u8;
                code.extend([0xc4, 0xe0 | map, random.byte() & 0x7f, random.byte()]);
            }
            1..=3 => code.extend([0x0f, random.byte()]),
            _ => code.push(random.byte()),
        }
        // ModRM, SIB, and displacements that stay within the data.
        code.extend([random.byte(), random.byte(), random.byte() & 3]);
        code.extend([0; 9]);
        if is_unrepeatable(&code) {
            continue;
        }
        let (words, data) = process.random_state(&mut random);
        let outcome = process.compare(&code, &words, &data);
        executed += usize::from(outcome.is_some_and(|o| o.signal == libc::SIGTRAP));
    }
    assert!(executed > 1500, "only {executed} were executed");
}

/// Whether an instruction gives a different result each time, or leaves the program in a state
/// that the test cannot restore.
fn is_unrepeatable(code: &[u8]) -> bool {
    let opcode = code.iter().position(|byte| {
        !matches!(
            byte,
            0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x64 | 0x65 | 0x26 | 0x2e | 0x36 | 0x3e | 0x40
                ..=0x4f
        )
    });
    let Some(rest) = opcode.map(|at| &code[at..]) else {
        return true;
    };
    match *rest {
        // popf, mov to a segment, enter with many levels
        [0x9d | 0x8e | 0x8c | 0xc8, ..] => true,
        [0xff, modrm, ..] => matches!(modrm >> 3 & 7, 3 | 5),
        // bt and similar instructions reach far out of the data
        [0x0f, 0xa3 | 0xab | 0xb3 | 0xbb, ..] => true,
        // system instructions, rdtsc, rdpmc, lss, lfs, lgs, fxsave and similar, rdrand, push and
        // pop of fs and gs
        [0x0f, second, ..] => matches!(
            second,
            0x00 | 0x01 | 0x31 | 0x33 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xb2 | 0xb4 | 0xb5 | 0xae | 0xc7 | 0x77
        ),
        // fsave and similar instructions store pointers to the instruction
        [0xd8..=0xdf | 0x9b, ..] => true,
        _ => false,
    }
}

/// Whether objdump shows data or an incomplete instruction.
fn is_data(text: &str) -> bool {
    text.contains("(bad)") || text.starts_with(".byte") || text.is_empty()
}

#[test]
fn lengths_agree_with_objdump() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        path.contains("libc.so").then(|| path.to_owned())
    });
    let library = library.expect("a dynamic libc");
    let output = Command::new("objdump")
        .args(["-d", "-w", "--insn-width=16", &library])
        .output()
        .expect("objdump");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut seen = 0;
    let mut wrong = Vec::new();
    for line in text.lines() {
        let mut columns = line.split('\t');
        let (Some(_), Some(bytes), Some(name)) = (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let mut code: Vec<u8> = bytes
            .split_whitespace()
            .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
            .collect();
        let length = code.len();
        // Prefixes that objdump shows on a line of their own.
        let alone = matches!(
            name.trim(),
            "rep" | "repz" | "repnz" | "lock" | "data16" | "cs" | "ds" | "fs"
        );
        if is_data(name.trim()) || alone || length == 0 {
            continue;
        }
        code.resize(16, 0);
        seen += 1;
        let found = instruction::decode(&code).map(|instruction| instruction.length);
        let unknown_to_us = ["xabort", "xbegin", "fwait"]
            .iter()
            .any(|n| name.contains(n));
        if found != Some(length) && !unknown_to_us {
            wrong.push(format!("{found:?} for {name} {bytes}"));
        }
    }
    assert!(seen > 100_000, "only {seen} instructions of {library}");
    assert!(
        wrong.is_empty(),
        "{} of {seen}: {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
}

#[test]
fn registers_of_the_kernels_set() {
    // The tests above assume that rax is word 10, as in `struct user_regs_struct`.
    let process = TestProcess::new();
    let words: Vec<u64> = (0..27).map(|index| word(&process.general, index)).collect();
    let outcome = process.compare(&[0xb8, 0x2a, 0, 0, 0], &words, &[0; DATA]);
    assert_eq!(outcome.map(|outcome| outcome.general[RAX]), Some(0x2a));
}
