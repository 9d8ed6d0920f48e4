//! Steps a real thread through a real collector. At every instruction, the stub can restore the
//! registers that the thread would have without the collector. At the end, the thread's state is as
//! if it had executed the displaced instructions in place.

use std::collections::{BTreeMap, BTreeSet};

use nix::sys::signal::SigSet;

use crate::arch::collector::IN_PLACE_OF_ONE;
use crate::arch::fast::{Site, Standing};
use crate::arch::stepped::{
    CASES, GENERAL, PC, POINTER_TO_NOTHING, SET_THREAD_POINTER, fill, settle, store_by_hand,
};
use crate::arch::{self, SP, TRAP_ADVANCE, Word};
use crate::ptrace::attach::Program;
use crate::ptrace::environment::Environment;
use crate::ptrace::wait_queue::WaitQueue;
use crate::subscription::role::Role;
use crate::sys::memory::Memory;
use crate::sys::wait::{Status, wait};
use crate::sys::{Tid, ptrace};
use crate::tracee::Tracee;
use crate::tracepoint::definition::{Action, Tracepoint};

struct Stepped {
    tracee: Tracee,
    tid: Tid,
    at: u64,
    /// The registers before the displaced instructions, as the kernel stores them.
    general: Vec<u8>,
    /// Registers to compare, before the displaced instructions.
    before: Vec<u64>,
    /// Registers to compare, after the displaced instructions.
    after: Vec<u64>,
}

fn general(tid: Tid) -> Vec<u8> {
    ptrace::register_set(tid, GENERAL.0, GENERAL.1).unwrap()
}

/// The registers to compare.
fn words(general: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| arch::wide(Word::from_le_bytes(bytes.try_into().unwrap()));
    let mut words: Vec<u64> = general.chunks(size_of::<Word>()).map(word).collect();
    settle(&mut words);
    words
}

/// Executes one instruction. If the kernel cannot single-step, runs up to a trap behind it.
fn step(tid: Tid, memory: &Memory) {
    let read = |at: u64, into: &mut [u8]| memory.read(at, into) == Ok(into.len());
    let places = arch::next_places(&general(tid), &read);
    let mut beneath = Vec::new();
    if !arch::CAN_STEP {
        assert!(!places.is_empty());
    }
    for (at, kind) in places {
        let trap = arch::trap(kind).unwrap();
        let mut code = vec![0; trap.len()];
        assert!(read(at, &mut code));
        memory.write(at, trap).unwrap();
        beneath.push((at, code));
    }
    if arch::CAN_STEP {
        ptrace::step(tid, 0).unwrap();
    } else {
        ptrace::cont(tid, 0).unwrap();
    }
    let report = wait(Some(tid), true);
    let trapped = matches!(report, Ok(Some((_, Status::Signal(libc::SIGTRAP)))));
    assert!(trapped, "{report:?} {:x?}", words(&general(tid)));
    for (at, code) in beneath.into_iter().rev() {
        memory.write(at, &code).unwrap();
    }
}

/// A program stopped at its first instruction.
fn stopped_program() -> Tracee {
    let program = Program {
        words: vec!["/bin/true".into()],
        wrapper: Vec::new(),
        environment: Environment::default(),
        directory: None,
        fixed_addresses: true,
        detached_stdio: true,
        default_keys: true,
        mask: SigSet::empty(),
    };
    Tracee::start(&program, WaitQueue::default()).expect("a program")
}

/// A program stopped at its first instructions, which are `code`, and its registers.
fn lend(kind: usize, code: &[u8]) -> (Tracee, Vec<u8>) {
    let mut tracee = stopped_program();
    let tid = tracee.process.pid();
    let mut at_first = general(tid);
    if let Some(number) = SET_THREAD_POINTER {
        tracee.call(number, [0x0012_3400, 0, 0, 0, 0, 0]).unwrap();
    }
    fill(&mut at_first, tid, kind);
    let stopped = tracee.process.stopped(tid).unwrap();
    stopped.set_general(&at_first).unwrap();
    tracee
        .process
        .memory
        .write(words(&at_first)[PC], code)
        .unwrap();
    (tracee, at_first)
}

/// Registers after the first `length` bytes of `code`, which are executed in place.
fn in_place(kind: usize, code: &[u8], length: usize) -> Vec<u64> {
    let (mut tracee, at_first) = lend(kind, code);
    let mut now = words(&at_first);
    let range = now[PC]..now[PC] + length as u64;
    while range.contains(&now[PC]) {
        step(tracee.process.pid(), &tracee.process.memory);
        now = words(&general(tracee.process.pid()));
    }
    tracee.kill();
    now
}

/// A program stopped at its first instructions, which are `code` and which a jump displaces.
fn start(kind: usize, code: &[u8]) -> Stepped {
    let (mut tracee, at_first) = lend(kind, code);
    let tid = tracee.process.pid();
    let before = words(&at_first);
    let at = before[PC];
    let site = Site {
        at,
        kind,
        code,
        capabilities: [0; 2],
        read: &|_, _| false,
    };
    let length = crate::arch::collector::displaceable(&site).expect("it can be displaced");
    let after = in_place(kind, code, length);
    let memory = |register, length| Action::Memory {
        register: Some(register),
        offset: 0,
        length,
    };
    let tracepoint = Tracepoint {
        number: 1,
        address: at,
        at,
        kind,
        enabled: true,
        fast: Some(code.to_vec()),
        // 107 bytes, because that takes a copy of every size.
        actions: vec![
            Action::Registers(1),
            memory(SP, 107),
            memory(POINTER_TO_NOTHING, 64),
        ],
        ..Tracepoint::default()
    };
    let trace = tracee.trace(Role::Control);
    trace.tracepoints.insert(tracepoint);
    tracee.start_trace(Role::Control).unwrap();
    assert!(
        tracee.tracepoints.fast.jump_pads.is_planted(at),
        "no jump at {at:#x}"
    );
    Stepped {
        tracee,
        tid,
        at,
        general: at_first,
        before,
        after,
    }
}

impl Stepped {
    /// Executes one instruction, even if it cannot be stepped.
    fn step(&self) {
        let mut now = general(self.tid);
        let mut code = [0; 4];
        let pc = words(&now)[PC];
        self.tracee.process.memory.read(pc, &mut code).unwrap();
        match store_by_hand(&code, &mut now) {
            Some((at, bytes)) => {
                self.tracee.process.memory.write(at, &bytes).unwrap();
                ptrace::set_register_set(self.tid, GENERAL.0, &now).unwrap();
            }
            None => step(self.tid, &self.tracee.process.memory),
        }
    }

    /// The thread's position, the slot that it has claimed, and the registers that it would have.
    fn back(&self) -> Option<(Standing, Option<u64>, Vec<u8>)> {
        let mut general = general(self.tid);
        let pc = words(&general)[PC];
        let memory = &self.tracee.process.memory;
        let (at, position) =
            self.tracee
                .tracepoints
                .fast
                .jump_pads
                .back(memory, pc, &mut general)?;
        assert_eq!(at, self.at);
        Some((position.standing, position.claimed, general))
    }

    /// Continues after a trap that the thread is about to execute, or has executed.
    fn pass_trap(&self, standing: Standing, mut back: Vec<u8>) {
        if TRAP_ADVANCE != 0 {
            return;
        }
        let mut go_on_at = words(&general(self.tid))[PC] + 4;
        if standing == Standing::Slow {
            go_on_at = self
                .tracee
                .tracepoints
                .fast
                .jump_pads
                .copy(self.at)
                .unwrap();
        } else {
            back = general(self.tid);
        }
        const WORD: usize = size_of::<Word>();
        back[WORD * PC..WORD * PC + WORD].copy_from_slice(&go_on_at.to_le_bytes()[..WORD]);
        ptrace::set_register_set(self.tid, GENERAL.0, &back).unwrap();
    }

    /// Asserts that the thread was seen after the displaced instructions, unless the last one
    /// jumps.
    fn goes_on(&self, counts: &BTreeMap<String, u32>) {
        let jumps = self.after[PC].wrapping_sub(self.at) > 16;
        assert!(jumps || counts.contains_key("After"), "{counts:?}");
    }

    /// Steps through the whole collector. Returns the number of steps at each position, and the
    /// number of steps with a claimed slot that is not filled.
    fn walk(&self) -> (BTreeMap<String, u32>, u32) {
        let (mut counts, mut claims) = (BTreeMap::new(), 0);
        for _ in 0..4000 {
            self.step();
            let Some((standing, claimed, back)) = self.back() else {
                assert_eq!(words(&general(self.tid)), self.after);
                return (counts, claims);
            };
            *counts.entry(format!("{standing:?}")).or_default() += 1;
            claims += u32::from(claimed.is_some());
            let now = words(&back);
            match standing {
                Standing::Before | Standing::Dealt | Standing::Slow | Standing::Alarmed => {
                    assert_eq!(now, self.before, "{standing:?}");
                }
                Standing::Inside => assert!(now[PC] > self.at && !IN_PLACE_OF_ONE),
                Standing::After => assert_eq!(now, self.after),
            }
            if matches!(standing, Standing::Slow | Standing::Alarmed) {
                self.pass_trap(standing, back);
            }
        }
        panic!("it does not come back: {counts:?}");
    }
}

#[test]
fn registers_are_restored_at_every_instruction() {
    let mut known = BTreeSet::new();
    for (kind, code) in CASES {
        // Cases of one kind differ only in the displaced instructions.
        if known.insert(kind) {
            walks_collector(*kind, code);
        } else {
            walks_copy(*kind, code);
        }
    }
}

/// Steps through only the displaced instructions.
fn walks_copy(kind: usize, code: &[u8]) {
    let mut stepped = start(kind, code);
    let mut general = stepped.general.clone();
    let copy = stepped
        .tracee
        .tracepoints
        .fast
        .jump_pads
        .copy(stepped.at)
        .unwrap();
    const WORD: usize = size_of::<Word>();
    general[WORD * PC..WORD * PC + WORD].copy_from_slice(&copy.to_le_bytes()[..WORD]);
    let stopped = stepped.tracee.process.stopped(stepped.tid).unwrap();
    stopped.set_general(&general).unwrap();
    let (standing, _, back) = stepped.back().unwrap();
    // A jump may count as executed.
    let expected = match standing {
        Standing::After => &stepped.after,
        _ => &stepped.before,
    };
    assert_eq!(words(&back), *expected, "{standing:?}");
    let (counts, _) = stepped.walk();
    stepped.goes_on(&counts);
    stepped.tracee.kill();
}

fn walks_collector(kind: usize, code: &[u8]) {
    let mut stepped = start(kind, code);
    // The thread is not registered with the collectors yet, so they leave the hit to the stub.
    let (counts, claims) = stepped.walk();
    assert!(
        counts["Before"] > 20 && counts.contains_key("Slow"),
        "{counts:?}"
    );
    assert_eq!(claims, 0);
    let inside = counts.contains_key("Inside");
    assert!(!(IN_PLACE_OF_ONE && inside), "{counts:?}");
    // Twice more with the thread registered. The second time must not raise an alarm.
    for round in 0..2 {
        let tid = stepped.tid;
        let general = stepped.general.clone();
        let stopped = stepped.tracee.process.stopped(tid).unwrap();
        stopped.set_general(&general).unwrap();
        stepped.tracee.register_with_collectors(tid);
        let (counts, claims) = stepped.walk();
        assert!(!counts.contains_key("Slow"), "{counts:?}");
        assert!(claims > 30, "{claims}");
        stepped.goes_on(&counts);
        let told = counts.get("Alarmed").copied();
        assert!(
            told == Some(1) || round == 1 && told.is_none(),
            "{counts:?}"
        );
        stepped.tracee.drain_jump_pads();
        let trace = stepped.tracee.trace(Role::Control);
        assert_eq!(trace.buffer.frames().len(), round + 1);
    }
    let mut stack = [0; 107];
    let sp = stepped.tracee.process.stopped(stepped.tid).unwrap();
    sp.set_general(&stepped.general).unwrap();
    let sp = sp.sp().unwrap();
    stepped.tracee.process.memory.read(sp, &mut stack).unwrap();
    let frames = stepped.tracee.trace(Role::Control).buffer.frames();
    let layout = crate::arch::layout();
    let blocks = frames[0].blocks(layout.size);
    let [
        crate::tracepoint::frame_buffer::Block::Registers(registers),
        crate::tracepoint::frame_buffer::Block::Memory {
            address,
            bytes: noted,
        },
    ] = blocks[..]
    else {
        panic!("{blocks:?}");
    };
    assert_eq!((address, noted), (sp, &stack[..]));
    let mut noted = stepped.general.clone();
    for register in &layout.registers {
        let place = register.place;
        if place.set == 0 {
            noted[place.offset..place.offset + place.size]
                .copy_from_slice(&registers[register.offset..register.offset + place.size]);
        }
    }
    assert_eq!(words(&noted), stepped.before);
    stepped.tracee.kill();
}
