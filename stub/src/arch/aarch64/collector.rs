//! Generates collectors: code inside the program that records a hit without a stop. A jump in the
//! program's text leads to a collector, which jumps back (docs/decisions/0005).
//!
//! ```text
//! switch: nop if the collector is on, b copy if it is off
//! entry:  allocates stack for x0 to x17 and the flags: the frame
//! body:   finds the thread (in a table that the stub fills, by tpidr_el0), takes a slot, copies;
//!         sp stays at the frame
//! leave:  restores all registers
//! copy:   the displaced instruction, or code with its effect, and a jump to the next instruction
//! slow:   brk
//! ```
//! A collector calls nothing, makes no system call, and touches no vector register. If it cannot
//! record a hit, it leaves the hit to the stub by the `brk` at `slow`.
//!
//! For every instruction of the collector, [`Collector::back`] computes the registers that a thread
//! there would have without the collector. Before the frame is complete, it uses the registers as
//! they are, and while the frame is on the stack, the values in the frame.
//!
//! The switch changes while threads execute it. Both of its instructions are among those for which
//! the architecture allows that (DDI 0487, B2.2.5). The jump replaces exactly one instruction, so
//! that no thread can be in the middle of the replaced bytes.

use super::super::fast::{
    ALARM, BEGIN, Base, DRAINED, END, FIRST_PAGE, GOLDEN, HALF, HASH_SHIFT, ID, LENGTHS, MASK,
    Noted, OWN, Order, POINTER, PROCESSOR, Position, SLOTS, STACK_END, STACK_POINTER, STATES, Sets,
    Site, Standing, Switch, TABLE, THREAD, THREAD_SIZE, TRIES,
};
use super::assembler::{self, Assembler, If, Label, NOP, R, SP, System, ZR};
use super::instruction::{Place, When, address, decode};
use super::user_regs::{COUNT, PC, SP as SP_AT, STATE, set_word, word};

/// The architecture's part of a slot: x0 to x30, and the flags.
const REGISTERS: u32 = OWN as u32;
const FLAGS: u32 = REGISTERS + 8 * 31;
/// Offset of the blocks in a slot.
pub(crate) const BLOCKS: usize = FLAGS as usize + 8;
/// Size of the head before a collector, in bytes: there is none.
pub(crate) const HEAD: u64 = 0;
/// Bit mask of the register sets that [`sets`] returns: general registers, thread pointer.
pub(crate) const SETS: u8 = 1 << 0 | 1 << 2;
/// Length of the jump to a collector, in bytes.
pub(crate) const JUMP: usize = 4;
/// Maximum distance from a jump to its collector, in bytes: the reach of `b`.
pub(crate) const REACH: u64 = 120 << 20;
/// Whether a jump displaces exactly one instruction. Here it does.
pub(crate) const IN_PLACE_OF_ONE: bool = true;

/// Number of registers in the frame, and its size: these, the flags, and alignment to 16.
const SAVED: R = 18;
const FRAME_FLAGS: u32 = 8 * SAVED as u32;
const FRAME: u32 = FRAME_FLAGS + 16;
/// N, Z, C, V.
const FLAG_BITS: u64 = 0xf000_0000;

// Use of the registers in the body.
/// The table's entry, later unused.
const ENTRY: R = 8;
const POINTER_IN: R = 9;
const POOL: R = 10;
const THREAD_IN: R = 11;
const STACK_END_IN: R = 12;
const STACK_POINTER_IN: R = 13;
const TICKET_IN: R = 14;
const STATE_IN: R = 15;
const SLOT: R = 16;
const TRIES_LEFT: R = 17;

/// Maximum length of an exclusive sequence that is sure to succeed, in instructions (B2.9.5: 128
/// bytes).
const LONGEST_EXCLUSIVE: u64 = 32;
/// `HWCAP2_BTI` (Linux `arch/arm64/include/uapi/asm/hwcap.h`)
const BRANCH_TARGETS: u64 = 1 << 17;

/// The generated code and its offsets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Collector {
    pub(crate) code: Vec<u8>,
    at: u64,
    pool: u64,
    slots: u64,
    /// Offset of the prologue's last two instructions: `mrs` into x0, and the store of x0.
    flags: usize,
    /// Offsets from which a slot may be taken, and from which the hit is recorded.
    claim: usize,
    done: usize,
    alarm: usize,
    copy: usize,
    /// For the instructions of the copy after the first one: the thread's address without the
    /// collector, and a register with its value.
    copied: Vec<Copied>,
    slow: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Copied {
    offset: usize,
    goes_to: u64,
    sets: Option<(R, u64)>,
}

/// Always true: Linux lets programs read the clock, or reads it for them, and all else is part of
/// the architecture.
pub(crate) fn can_collect(_capabilities: [u64; 2]) -> bool {
    true
}

/// Number of bytes that a jump displaces. `None` if the instruction cannot be moved.
pub(crate) fn displaceable(site: &Site) -> Option<usize> {
    let code = u32::from_le_bytes(*site.code.first_chunk()?);
    match decode(code) {
        Place::Fixed | Place::Literal { .. } | Place::Register { link: true, .. } => return None,
        _ => {}
    }
    // An indirect branch may lead to a landing instruction, but not to a jump in guarded memory
    // (D8.4.5).
    let guards = is_landing(code) && site.capabilities[1] & BRANCH_TARGETS != 0;
    (!guards && !in_exclusive_sequence(site)).then_some(4)
}

/// `bti`, `paciasp`, `pacibsp`: hints 25, 27, 32, 34, 36, 38.
fn is_landing(code: u32) -> bool {
    let hint = code >> 5 & 127;
    code & 0xffff_f01f == NOP & 0xffff_f01f && matches!(hint, 25 | 27 | 32 | 34 | 36 | 38)
}

/// Whether the jump would be between a load-exclusive and its store. The collector's own exclusives
/// and its traps would then clear the monitor.
fn in_exclusive_sequence(site: &Site) -> bool {
    // True for a load. (CASP has a similar encoding: bit 31 is clear and bit 21 is set, C4.1.)
    let exclusive = |address: u64| -> Option<bool> {
        let mut code = [0; 4];
        if !(site.read)(address, &mut code) {
            return None;
        }
        let code = u32::from_le_bytes(code);
        let is = code & 0x3f80_0000 == 0x0800_0000 && code >> 21 & 1 <= code >> 31;
        is.then_some(code >> 22 & 1 == 1)
    };
    let words = 1..=LONGEST_EXCLUSIVE;
    let before = words
        .clone()
        .find_map(|back| exclusive(site.at.wrapping_sub(4 * back)));
    let behind = words
        .into_iter()
        .find_map(|on| exclusive(site.at.wrapping_add(4 * (on - 1))));
    before == Some(true) || behind == Some(false)
}

/// Whether a jump needs a veneer. Here it leads to the collector itself.
pub(crate) const HAS_VENEERS: bool = false;

pub(crate) fn veneer(_kind: usize, _start: u64) -> Option<Vec<u8>> {
    None
}

/// The address of the instruction that a word on a stack may point to.
pub(crate) fn instruction_at(word: u64) -> u64 {
    word
}

/// The jump at `at` to a collector.
pub(crate) fn jump(at: u64, _kind: usize, start: u64) -> Option<[u8; JUMP]> {
    assembler::jump(at, start).map(u32::to_le_bytes)
}

/// Whether a block can have this register as its base.
pub(crate) fn is_base(number: usize) -> bool {
    number <= SP_AT
}

/// Targets of jumps in the collector.
struct Labels {
    start: Label,
    leave: Label,
    slow: Label,
}

/// Generates a collector. `None` if its displaced instruction cannot reach its target from there.
pub(crate) fn generate(order: &Order) -> Option<Collector> {
    let mut a = Assembler::default();
    let labels = Labels {
        start: a.mark(),
        leave: a.label(),
        slow: a.label(),
    };
    let copy_label = a.label();
    a.b(copy_label);
    a.sub(SP, SP, FRAME);
    for first in (0..SAVED).step_by(2) {
        a.stp([first, first + 1], SP, 8 * u32::from(first));
    }
    let flags = a.at();
    a.mrs(0, System::Nzcv);
    a.str(0, SP, FRAME_FLAGS);
    find_thread(&mut a, order, &labels);
    let claim = a.at();
    take_slot(&mut a, order, &labels);
    note(&mut a, order);
    a.mrs(0, System::Clock);
    a.str(0, SLOT, END.into());
    a.add_r(0, TICKET_IN, TICKET_IN, 0);
    a.add(0, 0, 1);
    a.stlr(0, STATE_IN);
    let done = a.at();
    a.ldr(0, POOL, DRAINED as u32);
    a.sub_r(0, TICKET_IN, 0);
    a.ldr(1, POOL, HALF as u32);
    a.cmp_r(0, 1);
    a.b_if(If::Less, labels.leave);
    a.add(1, POOL, ALARM as u32);
    a.ldr_w(2, 1, 0);
    a.cbnz_w(2, labels.leave);
    a.mov(0, 1);
    let swap = a.mark();
    a.ldaxr_w(2, 1);
    a.stlxr_w(3, 0, 1);
    a.cbnz_w(3, swap);
    a.cbnz_w(2, labels.leave);
    unless_off(&mut a, &labels);
    let alarm = a.at();
    a.brk();
    a.here(labels.leave);
    a.ldr(0, SP, FRAME_FLAGS);
    a.msr(System::Nzcv, 0);
    for first in (0..SAVED).step_by(2) {
        a.ldp([first, first + 1], SP, 8 * u32::from(first));
    }
    a.add(SP, SP, FRAME);
    let copy = a.at();
    a.here(copy_label);
    let copied = displace(&mut a, order)?;
    a.here(labels.slow);
    unless_off(&mut a, &labels);
    let slow = a.at();
    a.brk();
    a.link()?;
    Some(Collector {
        code: a.code,
        at: order.at,
        pool: order.pool,
        slots: order.slots,
        flags,
        claim,
        done,
        alarm,
        copy,
        copied,
        slow,
    })
}

/// Leaves if the collector is switched off, because the stub may then not exist to handle a trap.
fn unless_off(a: &mut Assembler, labels: &Labels) {
    a.ldr_w_of(0, labels.start);
    a.mov(1, NOP.into());
    a.cmp_w(0, 1);
    a.b_if(If::NotEqual, labels.leave);
}

/// Fills the registers named above, up to the stack pointer.
fn find_thread(a: &mut Assembler, order: &Order, labels: &Labels) {
    let known = a.label();
    a.mrs(POINTER_IN, System::ThreadPointer);
    a.mov(POOL, order.pool);
    a.mov(0, GOLDEN);
    a.mul(0, 0, POINTER_IN);
    a.lsr(0, 0, HASH_SHIFT);
    a.add(ENTRY, POOL, TABLE as u32);
    a.add_r(ENTRY, ENTRY, 0, THREAD_SIZE.trailing_zeros() as u8);
    a.ldar(0, ENTRY);
    a.cmp_r(0, POINTER_IN);
    a.b_if(If::Equal, known);
    a.mov(1, THREAD_SIZE);
    a.eor_r(ENTRY, ENTRY, 1);
    a.ldar(0, ENTRY);
    a.cmp_r(0, POINTER_IN);
    a.b_if(If::NotEqual, labels.slow);
    a.here(known);
    a.ldr(THREAD_IN, ENTRY, 8);
    a.ldp([2, STACK_END_IN], ENTRY, 16);
    // Check again that the entry is this thread's: the stub clears its key before it reuses it.
    a.dmb_ishld();
    a.ldr(0, ENTRY, 0);
    a.cmp_r(0, POINTER_IN);
    a.b_if(If::NotEqual, labels.slow);
    a.add(STACK_POINTER_IN, SP, FRAME);
    a.cmp_r(STACK_POINTER_IN, 2);
    a.b_if(If::Lower, labels.slow);
    a.cmp_r(STACK_POINTER_IN, STACK_END_IN);
    a.b_if(If::HigherOrSame, labels.slow);
    if let Some(most) = order.stack_left {
        a.sub_r(0, STACK_END_IN, STACK_POINTER_IN);
        a.mov(1, most.into());
        a.cmp_r(0, 1);
        a.b_if(If::Higher, labels.slow);
    }
}

/// Fills the registers of the ticket, the slot's state, and the slot.
fn take_slot(a: &mut Assembler, order: &Order, labels: &Labels) {
    let (taken, got) = (a.label(), a.label());
    a.mov(TRIES_LEFT, TRIES.into());
    let again = a.mark();
    a.ldaxr(TICKET_IN, POOL);
    a.add(0, TICKET_IN, 1);
    a.stlxr(1, 0, POOL);
    a.cbnz_w(1, again);
    a.ldr(0, POOL, MASK as u32);
    a.and_r(0, 0, TICKET_IN);
    a.add_r(STATE_IN, POOL, 0, 3);
    a.add(STATE_IN, STATE_IN, STATES as u32);
    a.add_r(2, TICKET_IN, TICKET_IN, 0);
    let claim = a.mark();
    a.ldaxr(1, STATE_IN);
    a.cbnz(1, taken);
    a.stlxr(1, 2, STATE_IN);
    a.cbnz_w(1, claim);
    a.b(got);
    a.here(taken);
    a.subs(TRIES_LEFT, TRIES_LEFT, 1);
    a.b_if(If::NotEqual, again);
    a.b(labels.slow);
    a.here(got);
    a.mov(1, order.slot_size);
    a.mov(2, order.pool.wrapping_add(SLOTS));
    a.madd(SLOT, 0, 1, 2);
}

fn note(a: &mut Assembler, order: &Order) {
    a.mov(0, order.id.into());
    a.stp([0, THREAD_IN], SLOT, ID.into());
    a.stp([POINTER_IN, STACK_END_IN], SLOT, POINTER.into());
    a.str(STACK_POINTER_IN, SLOT, STACK_POINTER.into());
    // The processor number that the kernel writes there (`struct rseq`), or -1.
    let none = a.label();
    a.asr(0, THREAD_IN, 32);
    a.mov(1, u64::MAX);
    a.cbz(0, none);
    a.add_r(0, 0, POINTER_IN, 0);
    a.ldr_w(1, 0, 0);
    a.here(none);
    a.str_w(1, SLOT, PROCESSOR.into());
    // Without it, the processor may read the clock before earlier instructions (D12.1.2).
    a.isb();
    a.mrs(0, System::Clock);
    a.str(0, SLOT, BEGIN.into());
    for first in (0..SAVED).step_by(2) {
        a.ldp([0, 1], SP, 8 * u32::from(first));
        a.stp([0, 1], SLOT, REGISTERS + 8 * u32::from(first));
    }
    for first in (SAVED..30).step_by(2) {
        a.stp([first, first + 1], SLOT, REGISTERS + 8 * u32::from(first));
    }
    a.ldr(0, SP, FRAME_FLAGS);
    a.stp([30, 0], SLOT, FLAGS - 8);
    let mut offset = BLOCKS as u64;
    for (index, block) in order.blocks.iter().enumerate() {
        match block.base {
            Base::Register(SP_AT) => a.mov_r(1, STACK_POINTER_IN),
            Base::Register(number) if number < SAVED.into() => a.ldr(1, SP, 8 * number as u32),
            Base::Register(number) => a.mov_r(1, number as R),
            Base::Absolute => a.mov(1, 0),
        }
        a.mov(0, block.offset);
        a.add_r(1, 1, 0, 0);
        a.mov(2, block.length.into());
        if block.is_stack() {
            a.subs_r(0, STACK_END_IN, 1);
            a.csel(0, 0, ZR, If::HigherOrSame);
            a.cmp_r(0, 2);
            a.csel(2, 0, 2, If::Lower);
        } else {
            a.cmp(1, FIRST_PAGE);
            a.csel(2, 2, ZR, If::HigherOrSame);
        }
        a.str_w(2, SLOT, u32::from(LENGTHS) + 4 * index as u32);
        a.mov(3, offset);
        a.add_r(3, SLOT, 3, 0);
        copy(a);
        offset += block.room();
    }
}

/// Copies x2 bytes from x1 to x3.
fn copy(a: &mut Assembler) {
    const CHUNK_SIZE: u32 = 64;
    for size in [CHUNK_SIZE, 8, 1] {
        let (rest, again) = (a.label(), a.label());
        a.subs(2, 2, size);
        a.b_if(If::Lower, rest);
        a.here(again);
        if size == CHUNK_SIZE {
            for offset in [0, 32] {
                a.ldp([4, 5], 1, offset);
                a.ldp([6, 7], 1, offset + 16);
                a.stp([4, 5], 3, offset);
                a.stp([6, 7], 3, offset + 16);
            }
            a.add(1, 1, CHUNK_SIZE);
            a.add(3, 3, CHUNK_SIZE);
        } else {
            a.ldr_next(4, 1, size);
            a.str_next(4, 3, size);
        }
        a.subs(2, 2, size);
        a.b_if(If::HigherOrSame, again);
        a.here(rest);
        a.adds(2, 2, size);
    }
}

/// Adds code with the effect of the displaced instruction, and the jump to where it continues.
fn displace(a: &mut Assembler, order: &Order) -> Option<Vec<Copied>> {
    let next = order.at.wrapping_add(4);
    let mut copied = Vec::new();
    let way = |a: &mut Assembler, copied: &mut Vec<Copied>, goes_to: u64, sets| {
        copied.push(Copied {
            offset: a.at(),
            goes_to,
            sets,
        });
        let from = order.start.wrapping_add(a.at() as u64);
        a.put(assembler::jump(from, goes_to)?);
        Some(())
    };
    // Several instructions. A thread in the middle of them counts as having executed all.
    let set = |a: &mut Assembler, copied: &mut Vec<Copied>, register: R, value: u64, goes_to| {
        let begin = a.at();
        a.mov(register, value);
        for offset in (begin + 4..a.at()).step_by(4) {
            copied.push(Copied {
                offset,
                goes_to,
                sets: Some((register, value)),
            });
        }
    };
    let code = u32::from_le_bytes(*order.displaced.first_chunk()?);
    match decode(code) {
        Place::Free | Place::Register { link: false, .. } => a.put(code),
        Place::Hint => a.nop(),
        Place::Address { register: ZR, .. } => a.nop(),
        Place::Address {
            register,
            offset,
            page,
        } => {
            let value = address(order.at, offset, page);
            set(a, &mut copied, register, value, next);
        }
        Place::Jump { when, offset, link } => {
            let target = order.at.wrapping_add_signed(offset);
            if link {
                set(a, &mut copied, 30, next, target);
                way(a, &mut copied, target, Some((30, next)))?;
                return Some(copied);
            }
            match when {
                When::Always => {}
                // The same instruction skips the jump back: two instructions on.
                When::Flags(_) | When::Zero { .. } => a.put(code & !(0x7_ffff << 5) | 2 << 5),
                When::Bit { .. } => a.put(code & !(0x3fff << 5) | 2 << 5),
            }
            if when != When::Always {
                way(a, &mut copied, next, None)?;
            }
            way(a, &mut copied, target, None)?;
            return Some(copied);
        }
        _ => return None,
    }
    way(a, &mut copied, next, None)?;
    Some(copied)
}

/// Reads the registers at the jump.
pub(crate) fn sets(noted: &Noted, at: u64, into: &mut Sets) {
    let general = into.get_mut(0, 8 * COUNT);
    for (index, place) in (REGISTERS as usize / 8..FLAGS as usize / 8).enumerate() {
        set_word(general, index, word(noted.0, place));
    }
    set_word(general, SP_AT, noted.stack_pointer());
    set_word(general, PC, at);
    set_word(general, STATE, word(noted.0, FLAGS as usize / 8));
    set_word(into.get_mut(2, 8), 0, noted.at(POINTER));
}

impl Collector {
    /// The first word of the code.
    pub(crate) fn switch(&self) -> Switch {
        let off = self.code.first_chunk().copied().unwrap_or_default();
        Switch {
            on: NOP.to_le_bytes(),
            off,
        }
    }

    /// Offset at which a thread goes on that has trapped at `offset` to wake the stub. `None` if it
    /// has not.
    pub(crate) fn after_alarm(&self, offset: u64) -> Option<u64> {
        (offset == self.alarm as u64).then_some(offset + 4)
    }

    /// Offset of the copy of the displaced instruction.
    pub(crate) fn copy(&self) -> u64 {
        self.copy as u64
    }

    /// Changes the registers of a thread at `offset` into those that it would have without the
    /// collector. `None` if its frame cannot be read.
    pub(crate) fn back(
        &self,
        offset: u64,
        general: &mut [u8],
        read: &dyn Fn(u64, &mut [u8]) -> bool,
    ) -> Option<Position> {
        const PROLOGUE: usize = 8;
        let offset = usize::try_from(offset).ok()?;
        let claims = (self.claim..self.done).contains(&offset);
        let mine = claims.then(|| {
            let state = word(general, STATE_IN.into());
            let ticket = word(general, TICKET_IN.into());
            (state, ticket.wrapping_mul(2).to_le_bytes().to_vec())
        });
        if let Some(copied) = self.copied.iter().find(|copied| copied.offset == offset) {
            set_word(general, PC, copied.goes_to);
            if let Some((register, value)) = copied.sets {
                set_word(general, register.into(), value);
            }
            let standing = Standing::After;
            return Some(Position {
                standing,
                claimed: None,
            });
        }
        if (PROLOGUE..self.copy).contains(&offset) || offset > self.copy {
            let frame_at = word(general, SP_AT);
            if offset > self.flags {
                let mut frame = [0; FRAME as usize];
                if !read(frame_at, &mut frame) {
                    return None;
                }
                // The prologue stores the flags last, from x0.
                let stored = offset > self.flags + 4;
                let registers = if stored { SAVED.into() } else { 1 };
                for register in 0..registers {
                    set_word(general, register, word(&frame, register));
                }
                if stored {
                    let others = word(general, STATE) & !FLAG_BITS;
                    let flags = word(&frame, SAVED.into()) & FLAG_BITS;
                    set_word(general, STATE, others | flags);
                }
            }
            set_word(general, SP_AT, frame_at.wrapping_add(FRAME.into()));
        }
        let standing = if offset == self.slow {
            Standing::Slow
        } else if offset == self.alarm {
            Standing::Alarmed
        } else if offset < self.done || offset > self.copy {
            Standing::Before
        } else {
            Standing::Dealt
        };
        set_word(general, PC, self.at);
        Some(Position::claiming(
            standing,
            (self.pool, self.slots),
            mine,
            read,
        ))
    }
}
