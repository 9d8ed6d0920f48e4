//! Compares displaced and emulated instructions of A32, T32 and A64 with the processor. Each test
//! executes an instruction at its address, and then in the other way. Registers, flags, vector
//! registers, memory and the final signal must be equal.
//!
//! The tests do not single-step, because ARMv7 cannot. They fill all text of the test process with
//! undefined instructions, and let it run until it reaches one. They run on the boards, where the
//! stub runs (`tests/tests/board/instructions.rs`). The tests for x86-64 are in
//! `x86_64/against_processor.rs`.

use std::time::{Duration, Instant};

use super::machine::{displace, emulate, is_system_call, may_displace};
use super::test_process::{self, Words};
use crate::sys::memory::Memory;
use crate::sys::wait::{Status, wait};
use crate::sys::{Tid, ptrace};

use super::cases::{self, FLAGS, GENERAL, Instruction, PC, VECTOR, WORD};

/// Size of the memory that instructions may use, in bytes. Registers point to its middle.
const DATA: usize = 3 * 4096;
/// Default seed of the random instructions; `UNSPOOL_SEED` overrides it.
const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Time limit for one instruction, which may jump to itself.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Replaces the signal of an instruction that did not end in time.
const ENDLESS: i32 = 0;

/// A program stopped at its first instruction, in which the tests execute code.
struct TestProcess {
    tid: Tid,
    memory: Memory,
    /// Address of the instruction under test.
    at: u64,
    slot: u64,
    data: u64,
    general: Vec<u8>,
    vector: Vec<u8>,
}

/// The state before an instruction.
#[derive(Clone)]
struct State {
    general: Vec<u8>,
    data: Vec<u8>,
}

/// The state that an instruction can change.
#[derive(PartialEq, Eq, Debug, Clone)]
struct Outcome {
    signal: i32,
    general: Vec<u8>,
    vector: Vec<u8>,
    data: Vec<u8>,
}

/// Numbers of instructions by the way in which they were executed.
#[derive(Default, Debug)]
struct Tally {
    emulated: u32,
    displaced: u32,
    /// Instructions that must be executed at their address.
    fixed: u32,
    /// Instructions that jump to themselves.
    endless: u32,
    /// Descriptions of the instructions with different outcomes.
    wrong: Vec<String>,
}

impl TestProcess {
    fn new() -> TestProcess {
        let tid = test_process::start("/bin/busybox");
        let (pc, sp) = test_process::pc_and_sp(tid);
        let memory = Memory::open(tid).unwrap();
        // Any jump into the program's own text soon reaches an undefined instruction.
        let maps = std::fs::read_to_string(format!("/proc/{tid}/maps")).unwrap();
        for line in maps.lines().filter(|line| line.contains(" r-xp ")) {
            let (start, rest) = line.split_once('-').unwrap();
            let end = rest.split(' ').next().unwrap();
            let number = |digits| u64::from_str_radix(digits, 16).unwrap();
            let length = (number(end) - number(start)) as usize;
            let fill = cases::FILL.to_le_bytes().repeat(length / 4);
            // The write fails for the kernel's pages.
            let _ = memory.write(number(start), &fill);
        }
        TestProcess {
            tid,
            memory,
            at: (pc & !0xfff) + 0x100,
            slot: (pc & !0xfff) + 0x800,
            data: (sp & !0xfff) - 2 * DATA as u64,
            general: ptrace::register_set(tid, GENERAL.0, GENERAL.1).unwrap(),
            vector: ptrace::register_set(tid, VECTOR.0, VECTOR.1).unwrap(),
        }
    }

    fn set(&self, state: &State, pc: u64) {
        let mut general = state.general.clone();
        put(&mut general, PC, pc);
        cases::not_in_a_call(&mut general);
        self.memory.write(self.data, &state.data).unwrap();
        ptrace::set_register_set(self.tid, GENERAL.0, &general).unwrap();
        ptrace::set_register_set(self.tid, VECTOR.0, &self.vector).unwrap();
    }

    /// Runs until an undefined instruction or a fault.
    fn run(&self) -> Outcome {
        ptrace::cont(self.tid, 0).unwrap();
        let begin = Instant::now();
        let signal = loop {
            match wait(Some(self.tid), false) {
                Ok(Some((_, Status::Signal(signal)))) => break signal,
                Ok(Some((_, Status::Held(_)))) => break ENDLESS,
                Ok(None) if begin.elapsed() < STOP_TIMEOUT => std::thread::yield_now(),
                Ok(None) => ptrace::interrupt(self.tid).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        let mut data = vec![0; DATA];
        self.memory.read(self.data, &mut data).unwrap();
        let mut general = ptrace::register_set(self.tid, GENERAL.0, GENERAL.1).unwrap();
        let flags = get(&general, FLAGS) & !cases::KERNELS;
        put(&mut general, FLAGS, flags);
        Outcome {
            signal,
            general,
            vector: ptrace::register_set(self.tid, VECTOR.0, VECTOR.1).unwrap(),
            data,
        }
    }

    /// Executes an instruction in both ways, and compares the outcomes.
    fn compare(&self, instruction: &Instruction, state: &State, tally: &mut Tally) {
        let at = self.at + instruction.offset;
        let mut place = instruction.code.clone();
        place.extend(instruction.behind());
        let before = {
            let mut general = state.general.clone();
            put(&mut general, PC, at);
            general
        };
        let mut seen = place.clone();
        seen.resize(16, 0);
        let mut emulated = before.clone();
        self.memory.write(self.data, &state.data).unwrap();
        self.memory.write(at, &place).unwrap();
        let emulates = emulate(&seen, &mut emulated, &Words(&self.memory));
        let displaced = displace(&seen, at, self.slot, instruction.kind)
            .filter(|_| may_displace(&before) && !is_system_call(&seen, &before));
        if !emulates && displaced.is_none() {
            tally.fixed += 1;
            return;
        }
        self.set(state, at);
        let expected = self.run();
        if expected.signal == ENDLESS {
            tally.endless += 1;
            return;
        }
        let text = format!("{instruction:x?} with {}", cases::shown(&before));
        if emulates {
            tally.emulated += 1;
            let after = State {
                general: emulated.clone(),
                data: state.data.clone(),
            };
            let pc = get(&emulated, PC);
            // An instruction that continues at itself would run forever on the processor.
            assert_ne!(pc, at, "{text}");
            self.set(&after, pc);
            let wrong = differ(&self.run(), &expected);
            tally
                .wrong
                .extend(wrong.map(|how| format!("{how}: emulated {text}")));
        }
        if let Some(displaced) = displaced {
            tally.displaced += 1;
            assert_eq!(displaced.length, instruction.code.len(), "{text}");
            self.memory.write(self.slot, &displaced.code).unwrap();
            self.set(state, self.slot);
            let mut found = self.run();
            // Adjust the pc of a thread that stopped in a slot, as the stub does. (Linux on ARM
            // leaves it after an instruction whose alignment fault it does not fix.)
            match get(&found.general, PC).checked_sub(self.slot) {
                Some(0) => put(&mut found.general, PC, at),
                Some(1..32) => put(&mut found.general, PC, at + displaced.length as u64),
                _ => {}
            }
            let filled = cases::FILL.to_le_bytes().repeat(8);
            self.memory.write(self.slot, &filled).unwrap();
            let wrong = differ(&found, &expected);
            tally
                .wrong
                .extend(wrong.map(|how| format!("{how}: displaced {text}")));
        }
    }
}

impl Tally {
    fn show(&self, class: &str) {
        println!(
            "{class}: {} emulated, {} displaced, {} to be executed in their places, {} endless, {} wrong",
            self.emulated,
            self.displaced,
            self.fixed,
            self.endless,
            self.wrong.len()
        );
        for wrong in self.wrong.iter().take(20) {
            println!("  {wrong}");
        }
    }
}

/// Describes the first difference between the outcomes.
fn differ(found: &Outcome, expected: &Outcome) -> Option<String> {
    let count = expected.general.len() / WORD;
    let word = |outcome: &Outcome, index| get(&outcome.general, index);
    let other = (0..count).find(|index| word(found, *index) != word(expected, *index));
    if found.signal != expected.signal {
        Some(format!("signal {}, not {}", found.signal, expected.signal))
    } else if let Some(index) = other {
        let (found, expected) = (word(found, index), word(expected, index));
        Some(format!("register {index} is {found:x}, not {expected:x}"))
    } else if found.vector != expected.vector {
        Some("vector registers".to_owned())
    } else {
        (found.data != expected.data).then(|| "memory".to_owned())
    }
}

pub(super) fn get(set: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    word[..WORD].copy_from_slice(&set[WORD * index..WORD * (index + 1)]);
    u64::from_le_bytes(word)
}

pub(super) fn put(set: &mut [u8], index: usize, word: u64) {
    set[WORD * index..WORD * (index + 1)].copy_from_slice(&word.to_le_bytes()[..WORD]);
}

/// xorshift64*.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 16) % limit
    }
}

/// Aligns an address that is an odd halfword, where neither A32 nor T32 can begin.
fn whole(word: u64) -> u64 {
    if word & 3 == 2 { word & !3 } else { word }
}

impl TestProcess {
    /// Registers that mostly point into the data, and random flags.
    fn random_state(&self, random: &mut Random, instruction: &Instruction) -> State {
        let mut general = self.general.clone();
        for index in cases::FREE {
            let word = match random.below(8) {
                0 => whole(random.next()),
                1 => whole(random.below(64)),
                _ => self.data + 4096 + 8 * random.below(512),
            };
            put(&mut general, index, word);
        }
        put(
            &mut general,
            cases::SP,
            self.data + 4096 + 16 * random.below(128),
        );
        let flags = get(&general, FLAGS) & !cases::STATUS | random.next() & cases::STATUS;
        put(&mut general, FLAGS, instruction.mode(flags, random));
        let data = (0..DATA).map(|_| random.next() as u8).collect();
        State { general, data }
    }
}

#[test]
fn every_class_of_instruction() {
    let process = TestProcess::new();
    let mut random = Random(SEED);
    let mut wrong = 0;
    for (class, instructions) in cases::classes() {
        let mut tally = Tally::default();
        for instruction in instructions {
            for _ in 0..6 {
                let state = process.random_state(&mut random, &instruction);
                process.compare(&instruction, &state, &mut tally);
            }
        }
        tally.show(&class);
        assert!(tally.emulated + tally.displaced > 0, "{class}: {tally:?}");
        wrong += tally.wrong.len();
    }
    assert_eq!(wrong, 0);
}

#[test]
fn random_instructions() {
    let seed = std::env::var("UNSPOOL_SEED").ok();
    let seed = seed.and_then(|digits| digits.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}: repeat with UNSPOOL_SEED={seed}");
    let process = TestProcess::new();
    let mut random = Random(seed | 1);
    let mut tally = Tally::default();
    for _ in 0..3000 {
        let Some(instruction) = cases::random(&mut random) else {
            continue;
        };
        let state = process.random_state(&mut random, &instruction);
        process.compare(&instruction, &state, &mut tally);
    }
    tally.show("random");
    assert!(tally.wrong.is_empty(), "seed {seed}");
    assert!(tally.emulated > 50 && tally.displaced > 1000, "{tally:?}");
}
