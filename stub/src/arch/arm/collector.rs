//! Generates collectors: code inside the program that records a hit without a stop. A jump in the
//! program's text leads to a collector, which jumps back (docs/decisions/0005).
//!
//! ```text
//! veneer: near the jump, in unused bytes: loads the collector's address into pc
//! switch: nop if the collector is on, b copy if it is off
//! entry:  pushes r0 to r12, lr and the flags: the frame
//! body:   finds the thread (in a table that the stub fills, by TPIDRURO), takes a slot, copies;
//!         sp stays at the frame
//! leave:  restores all registers
//! copy:   the displaced instructions, in their own instruction set (`moved`),
//!         and an absolute jump to the instruction after them
//! slow:   a trap
//! ```
//! A collector is A32 code, even if the jump to it is T32. It calls nothing, makes no system call,
//! and touches no vector register. If it cannot record a hit, it leaves the hit to the stub by the
//! trap at `slow`. For every instruction of the collector, [`Collector::back`] computes the
//! registers that a thread there would have without the collector.
//!
//! The switch changes while threads execute it. Both of its instructions are among those for which
//! the architecture allows that (DDI 0406C, A3.5.4).

use super::super::fast::{
    ALARM, BEGIN, Base, DRAINED, END, FIRST_PAGE, GOLDEN, HALF, HASH_SHIFT, ID, LENGTHS, MASK,
    Noted, OWN, Order, POINTER, PROCESSOR, Position, SLOTS, STACK_END, STACK_POINTER, STATES, Sets,
    Site, Standing, Switch, TABLE, THREAD, THREAD_SIZE, TRIES,
};
use super::assembler::{self, Assembler, If, LR, Label, NOP, R, SP, TO_NEXT_WORD};
use super::flow::Flow;
use super::moved::{self, Place};
use super::user_regs::{COUNT, ORIG_R0, PC as PC_AT, STATE as STATE_AT, set_word, word};
use super::{a32, t32};

/// The architecture's part of a slot: the frame, and the instruction set.
const FRAME_IN_SLOT: u32 = OWN as u32;
const INSTRUCTION_SET: u32 = FRAME_IN_SLOT + FRAME;
/// Offset of the blocks in a slot.
pub(crate) const BLOCKS: usize = INSTRUCTION_SET as usize + 4;
/// Size of the head before a collector, in bytes: there is none.
pub(crate) const HEAD: u64 = 0;
/// Bit mask of the register sets that [`sets`] returns: general registers, thread pointer.
pub(crate) const SETS: u8 = 1 << 0 | 1 << 2;
/// Length of the jump to a collector, in bytes.
pub(crate) const JUMP: usize = 4;
/// Whether a jump displaces exactly one instruction. In T32 it may displace two.
pub(crate) const IN_PLACE_OF_ONE: bool = false;
/// Maximum distance from the jump to the veneer, in bytes: the reach of `b.w`.
pub(crate) const REACH: u64 = 15 << 20;

/// The frame, from its lowest word: flags, r0 to r12, lr.
const FRAME: u32 = 4 * 15;
const ALL: u32 = 0x1fff | 1 << LR;
/// N, Z, C, V, Q, GE.
const FLAG_BITS: u32 = 0xf80f_0000;
/// Bits of the processor's state: T32, and user mode.
const THUMB: u32 = 1 << 5;
const USER: u32 = 0x10;

// Index in the kernel's set (`struct pt_regs`).
const LR_AT: usize = 14;

// Use of the registers in the body.
const POOL: R = 4;
const POINTER_IN: R = 5;
const THREAD_IN: R = 6;
const STACK_END_IN: R = 7;
const STACK_POINTER_IN: R = 8;
/// The lower half of the ticket.
const TICKET_IN: R = 9;
const STATE_IN: R = 10;
const SLOT: R = 11;
const PROCESSOR_IN: R = 12;

/// `HWCAP_TLS`, and `HWCAP_EVTSTRM`, which implies that the clock exists (Linux
/// `arch/arm/include/uapi/asm/hwcap.h`).
const NEEDED: u64 = 1 << 15 | 1 << 21;
/// Maximum length of an exclusive sequence that the search finds, in bytes.
const LONGEST_EXCLUSIVE: u64 = 128;
/// Maximum distance, in bytes, from an IT instruction to the last one that depends on it: the IT
/// instruction itself, and three others.
const LONGEST_IT: u64 = 2 + 3 * 4;

/// The generated code and its offsets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Collector {
    pub(crate) code: Vec<u8>,
    at: u64,
    thumb: bool,
    pool: u64,
    slots: u64,
    /// The first instruction after the prologue, where the frame is complete; the instruction of
    /// the epilogue that finds the frame without the flags.
    full: usize,
    part: usize,
    /// Offsets from which a slot may be taken, and from which the hit is recorded.
    claim: usize,
    done: usize,
    alarm: usize,
    copy: usize,
    /// Places in the copy of the displaced instructions.
    places: Vec<Place>,
    slow: usize,
}

/// Whether the processor supports collectors.
pub(crate) fn can_collect(capabilities: [u64; 2]) -> bool {
    capabilities[0] & NEEDED == NEEDED && crate::sys::ticks_can_be_read()
}

/// Number of bytes that a jump displaces. `None` if one of these instructions cannot be moved.
pub(crate) fn displaceable(site: &Site) -> Option<usize> {
    let length = moved::length(site.kind, site.code, site.at)?;
    let conditional = is_t32(site.kind) && in_it_block(site);
    (!in_exclusive_sequence(site) && !conditional).then_some(length)
}

pub(super) fn is_t32(kind: usize) -> bool {
    kind != 4
}

/// Whether the instructions may be in an IT block. Instructions before them may begin at any
/// halfword, so every earlier halfword that looks like an IT instruction counts.
fn in_it_block(site: &Site) -> bool {
    (2..=LONGEST_IT).step_by(2).any(|back| {
        let mut half = [0; 2];
        // IT: 1011 1111 cccc mmmm
        (site.read)(site.at.wrapping_sub(back), &mut half) && half[1] == 0xbf && half[0] & 15 != 0
    })
}

/// Whether the jump would be between a load-exclusive and its store. The collector's own exclusives
/// and its traps would then clear the monitor.
fn in_exclusive_sequence(site: &Site) -> bool {
    let step = if is_t32(site.kind) { 2 } else { 4 };
    // True for a load, false for a store.
    let exclusive = |address: u64| -> Option<bool> {
        let mut code = [0; 4];
        if !(site.read)(address, &mut code) {
            return None;
        }
        let flow = if is_t32(site.kind) {
            let half = |at| u16::from_le_bytes([code[at], code[at + 1]]);
            t32::decode(half(0), half(2)).flow
        } else {
            a32::decode(u32::from_le_bytes(code)).flow
        };
        match flow {
            Flow::LoadExclusive => Some(true),
            Flow::StoreExclusive => Some(false),
            _ => None,
        }
    };
    let distances = (0..LONGEST_EXCLUSIVE).step_by(step);
    let mut before = distances.clone().skip(1);
    let before = before.find_map(|back| exclusive(site.at.wrapping_sub(back)));
    let mut behind = distances;
    let behind = behind.find_map(|on| exclusive(site.at.wrapping_add(on)));
    before == Some(true) || behind == Some(false)
}

/// Whether a jump needs a veneer. Here it does.
pub(crate) const HAS_VENEERS: bool = true;

/// The jump at `at` to the veneer.
pub(crate) fn jump(at: u64, kind: usize, to: u64) -> Option<[u8; JUMP]> {
    let code = if is_t32(kind) {
        assembler::jump_t32(at, to)
    } else {
        assembler::jump(at, to)
    };
    code.map(u32::to_le_bytes)
}

/// The code at a word-aligned address near the jump that leads to the collector.
pub(crate) fn veneer(kind: usize, start: u64) -> Option<Vec<u8>> {
    let first = if is_t32(kind) {
        LOAD_PC_T32
    } else {
        TO_NEXT_WORD
    };
    let address = u32::try_from(start).ok()?;
    Some([first.to_le_bytes(), address.to_le_bytes()].concat())
}

/// `ldr.w pc, [pc, #0]` of T32: jumps to the address that follows.
const LOAD_PC_T32: u32 = 0xf000_f8df;

/// Whether a block can have this register as its base.
pub(crate) fn is_base(number: usize) -> bool {
    number < PC_AT
}

/// The address of the instruction that a word on a stack may point to, without the instruction set.
pub(crate) fn instruction_at(word: u64) -> u64 {
    word & !1
}

/// Targets of jumps in the collector.
struct Labels {
    start: Label,
    leave: Label,
    slow: Label,
}

/// Generates a collector.
pub(crate) fn generate(order: &Order) -> Option<Collector> {
    let mut a = Assembler::default();
    let labels = Labels {
        start: a.mark(),
        leave: a.label(),
        slow: a.label(),
    };
    let copy_label = a.label();
    a.b(copy_label);
    a.push(ALL);
    a.mrs(0);
    a.push(1);
    let full = a.at();
    find_thread(&mut a, order, &labels);
    let claim = a.at();
    take_slot(&mut a, order, &labels);
    note(&mut a, order);
    a.clock(0, 1);
    a.str(0, SLOT, END.into());
    a.str(1, SLOT, u32::from(END) + 4);
    // The upper half of the state is already there.
    a.add_r(0, TICKET_IN, TICKET_IN, 0);
    a.add(0, 0, 1);
    a.dmb();
    a.str(0, STATE_IN, 0);
    let done = a.at();
    a.ldr(0, POOL, DRAINED as u32);
    a.sub_r(0, TICKET_IN, 0);
    a.ldr(1, POOL, HALF as u32);
    a.cmp_r(0, 1);
    a.b_if(If::Less, labels.leave);
    a.add(1, POOL, ALARM as u32);
    a.ldr(2, 1, 0);
    a.cmp(2, 0);
    a.b_if(If::NotEqual, labels.leave);
    a.mov(0, 1);
    let swap = a.mark();
    a.ldrex(2, 1);
    a.strex(3, 0, 1);
    a.cmp(3, 0);
    a.b_if(If::NotEqual, swap);
    a.cmp(2, 0);
    a.b_if(If::NotEqual, labels.leave);
    unless_off(&mut a, &labels);
    let alarm = a.at();
    a.trap();
    a.here(labels.leave);
    a.ldr(0, SP, 0);
    a.msr(0);
    a.add(SP, SP, 4);
    let part = a.at();
    a.ldm(SP, ALL);
    let copy = a.at();
    a.here(copy_label);
    let places = displace(&mut a, order)?;
    a.here(labels.slow);
    unless_off(&mut a, &labels);
    let slow = a.at();
    a.trap();
    a.numbers();
    a.link()?;
    Some(Collector {
        code: a.code,
        at: order.at,
        thumb: is_t32(order.kind),
        pool: order.pool,
        slots: order.slots,
        full,
        part,
        claim,
        done,
        alarm,
        copy,
        places,
        slow,
    })
}

/// Leaves if the collector is switched off, because the stub may then not exist to handle a trap.
fn unless_off(a: &mut Assembler, labels: &Labels) {
    a.ldr_of(0, labels.start);
    a.mov(1, NOP);
    a.cmp_r(0, 1);
    a.b_if(If::NotEqual, labels.leave);
}

/// Fills the registers named above, up to the stack pointer, and the processor.
fn find_thread(a: &mut Assembler, order: &Order, labels: &Labels) {
    let known = a.label();
    a.thread_pointer(POINTER_IN);
    a.mov(POOL, order.pool as u32);
    // The upper half of a 64-bit product.
    a.mov(2, GOLDEN as u32);
    a.umull(0, 1, POINTER_IN, 2);
    a.mov(2, (GOLDEN >> 32) as u32);
    a.mla(1, POINTER_IN, 2, 1);
    a.lsr(1, 1, u32::from(HASH_SHIFT) - 32);
    a.add(LR, POOL, TABLE as u32);
    a.add_r(LR, LR, 1, THREAD_SIZE.trailing_zeros());
    a.ldr(0, LR, 0);
    a.cmp_r(0, POINTER_IN);
    a.b_if(If::Equal, known);
    a.eor(LR, LR, THREAD_SIZE as u32);
    a.ldr(0, LR, 0);
    a.cmp_r(0, POINTER_IN);
    a.b_if(If::NotEqual, labels.slow);
    a.here(known);
    a.dmb();
    a.ldr(THREAD_IN, LR, 8);
    a.ldr(3, LR, 12);
    a.ldr(2, LR, 16);
    a.ldr(STACK_END_IN, LR, 24);
    // Check again that the entry is this thread's: the stub clears its key before it reuses it.
    a.dmb();
    a.ldr(0, LR, 0);
    a.cmp_r(0, POINTER_IN);
    a.b_if(If::NotEqual, labels.slow);
    a.add(STACK_POINTER_IN, SP, FRAME);
    a.cmp_r(STACK_POINTER_IN, 2);
    a.b_if(If::Lower, labels.slow);
    a.cmp_r(STACK_POINTER_IN, STACK_END_IN);
    a.b_if(If::HigherOrSame, labels.slow);
    if let Some(most) = order.stack_left {
        a.sub_r(0, STACK_END_IN, STACK_POINTER_IN);
        a.mov(1, most);
        a.cmp_r(0, 1);
        a.b_if(If::Higher, labels.slow);
    }
    // The processor number that the kernel writes there (`struct rseq`), or -1.
    a.mov(PROCESSOR_IN, u32::MAX);
    a.cmp(3, 0);
    a.add_r_if(If::NotEqual, 3, 3, POINTER_IN);
    a.ldr_if(If::NotEqual, PROCESSOR_IN, 3, 0);
}

/// Fills the registers of the ticket, the slot's state, and the slot.
fn take_slot(a: &mut Assembler, order: &Order, labels: &Labels) {
    let (taken, got) = (a.label(), a.label());
    a.mov(LR, TRIES);
    let again = a.mark();
    a.ldrexd(0, POOL);
    a.adds(2, 0, 1);
    a.adc(3, 1, 0);
    a.strexd(TICKET_IN, 2, POOL);
    a.cmp(TICKET_IN, 0);
    a.b_if(If::NotEqual, again);
    a.mov_r(TICKET_IN, 0);
    a.ldr(SLOT, POOL, MASK as u32);
    a.and_r(SLOT, SLOT, 0);
    a.add(STATE_IN, POOL, STATES as u32);
    a.add_r(STATE_IN, STATE_IN, SLOT, 3);
    a.adds_r(2, 0, 0);
    a.adc_r(3, 1, 1);
    let claim = a.mark();
    a.ldrexd(0, STATE_IN);
    a.orrs_r(0, 0, 1);
    a.b_if(If::NotEqual, taken);
    a.strexd(0, 2, STATE_IN);
    a.cmp(0, 0);
    a.b_if(If::NotEqual, claim);
    a.dmb();
    a.b(got);
    a.here(taken);
    a.subs(LR, LR, 1);
    a.b_if(If::NotEqual, again);
    a.b(labels.slow);
    a.here(got);
    a.mov(1, order.slot_size as u32);
    a.mov(2, order.pool.wrapping_add(SLOTS) as u32);
    a.mla(SLOT, SLOT, 1, 2);
}

/// Fills the slot. Only the clock's values have upper halves; those of other words are always zero.
fn note(a: &mut Assembler, order: &Order) {
    a.mov(0, order.id);
    for (register, offset) in [
        (0, ID),
        (THREAD_IN, THREAD),
        (POINTER_IN, POINTER),
        (STACK_END_IN, STACK_END),
        (STACK_POINTER_IN, STACK_POINTER),
        (PROCESSOR_IN, PROCESSOR),
    ] {
        a.str(register, SLOT, offset.into());
    }
    // Without it, the processor may read the clock before earlier instructions (B8.1.2).
    a.isb();
    a.clock(0, 1);
    a.str(0, SLOT, BEGIN.into());
    a.str(1, SLOT, u32::from(BEGIN) + 4);
    a.mov_r(1, SP);
    a.add(2, SLOT, FRAME_IN_SLOT);
    // r0, r3, r5, r12, lr
    const FIVE: u32 = 1 | 1 << 3 | 1 << 5 | 1 << 12 | 1 << LR;
    for _ in 0..FRAME / 4 / FIVE.count_ones() {
        a.ldm(1, FIVE);
        a.stm(2, FIVE);
    }
    a.mov(0, if is_t32(order.kind) { THUMB } else { 0 });
    a.str(0, SLOT, INSTRUCTION_SET);
    let mut offset = BLOCKS as u64;
    for (index, block) in order.blocks.iter().enumerate() {
        match block.base {
            Base::Register(13) => a.mov_r(1, STACK_POINTER_IN),
            Base::Register(LR_AT) => a.ldr(1, SP, FRAME - 4),
            Base::Register(number) => a.ldr(1, SP, 4 + 4 * number as u32),
            Base::Absolute => a.mov(1, 0),
        }
        a.mov(0, block.offset as u32);
        a.add_r(1, 1, 0, 0);
        a.mov(2, block.length);
        if block.is_stack() {
            a.subs_r(0, STACK_END_IN, 1);
            a.mov_if(If::Lower, 0, 0);
            a.cmp_r(0, 2);
            a.mov_r_if(If::Lower, 2, 0);
        } else {
            a.cmp(1, FIRST_PAGE);
            a.mov_if(If::Lower, 2, 0);
        }
        a.str(2, SLOT, u32::from(LENGTHS) + 4 * index as u32);
        a.mov(3, offset as u32);
        a.add_r(3, SLOT, 3, 0);
        copy(a);
        offset += block.room();
    }
}

/// Copies r2 bytes from r1 to r3.
fn copy(a: &mut Assembler) {
    const CHUNK_SIZE: u32 = 32;
    for size in [CHUNK_SIZE, 4, 1] {
        let (rest, again) = (a.label(), a.label());
        a.subs(2, 2, size);
        a.b_if(If::Lower, rest);
        a.here(again);
        let unit = size.min(4);
        for _ in 0..size / unit {
            a.ldr_next(0, 1, unit);
            a.str_next(0, 3, unit);
        }
        a.subs(2, 2, size);
        a.b_if(If::HigherOrSame, again);
        a.here(rest);
        a.adds(2, 2, size);
    }
}

/// Adds the displaced instructions and the jump back. Returns the places at which a thread may be.
fn displace(a: &mut Assembler, order: &Order) -> Option<Vec<Place>> {
    if is_t32(order.kind) {
        a.put(TO_NEXT_WORD);
        let here = order.start.wrapping_add(a.at() as u64 + 4);
        a.put(here as u32 | 1);
    }
    let places = moved::assemble(a, order)?;
    a.align();
    Some(places)
}

/// Reads the registers at the jump.
pub(crate) fn sets(noted: &Noted, at: u64, into: &mut Sets) {
    let frame = noted.0.get(FRAME_IN_SLOT as usize..).unwrap_or_default();
    let general = into.get_mut(0, 4 * COUNT);
    for register in 0..13 {
        set_word(general, register, word(frame, 1 + register));
    }
    let state = word(frame, 0) & FLAG_BITS | USER | noted.half(INSTRUCTION_SET as u8);
    set_word(general, 13, noted.stack_pointer() as u32);
    set_word(general, LR_AT, word(frame, 14));
    set_word(general, PC_AT, at as u32);
    set_word(general, STATE_AT, state);
    set_word(general, ORIG_R0, u32::MAX);
    set_word(into.get_mut(2, 4), 0, noted.at(POINTER) as u32);
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

    /// Offset of the displaced instructions, in their own instruction set.
    pub(crate) fn copy(&self) -> u64 {
        self.places.first().map_or(self.copy, |place| place.offset) as u64
    }

    /// Changes the registers of a thread at `offset` into those that it would have without the
    /// collector. `None` if its frame cannot be read.
    pub(crate) fn back(
        &self,
        offset: u64,
        general: &mut [u8],
        read: &dyn Fn(u64, &mut [u8]) -> bool,
    ) -> Option<Position> {
        const PUSHED: usize = 8;
        let offset = usize::try_from(offset).ok()?;
        let sp = word(general, 13);
        let words = |from: u32, count: usize| {
            let mut bytes = vec![0; 4 * count];
            let known = read(sp.wrapping_add(from).into(), &mut bytes);
            known.then(|| {
                (0..count)
                    .map(|index| word(&bytes, index))
                    .collect::<Vec<u32>>()
            })
        };
        let mine = (self.claim..self.done).contains(&offset).then(|| {
            let (state, ticket) = (
                word(general, STATE_IN as usize),
                word(general, TICKET_IN as usize),
            );
            (
                u64::from(state),
                ticket.wrapping_mul(2).to_le_bytes().to_vec(),
            )
        });
        let mut standing = if offset == self.slow {
            Standing::Slow
        } else if offset == self.alarm {
            Standing::Alarmed
        } else if offset < self.done || offset >= self.slow.saturating_sub(UNLESS_OFF) {
            Standing::Before
        } else {
            Standing::Dealt
        };
        let mut goes_to = self.at as u32 | u32::from(self.thumb);
        let place = self.places.iter().find(|place| place.offset == offset);
        if let Some(place) = place {
            place.finish(general, read)?;
            goes_to = place.goes_to;
            standing = place.standing;
        } else if offset == self.copy || offset < PUSHED {
            // No register has changed yet.
        } else if offset == PUSHED {
            set_word(general, 13, sp.wrapping_add(FRAME - 4));
        } else if offset < self.full {
            set_word(general, 0, words(0, 1)?[0]);
            set_word(general, 13, sp.wrapping_add(FRAME - 4));
        } else {
            let has_flags = offset != self.part;
            let frame = words(0, if has_flags { 15 } else { 14 })?;
            let registers = &frame[usize::from(has_flags)..];
            for (index, value) in registers.iter().enumerate() {
                let register = if index == 13 { LR_AT } else { index };
                set_word(general, register, *value);
            }
            if has_flags {
                let others = word(general, STATE_AT) & !FLAG_BITS;
                set_word(general, STATE_AT, others | frame[0] & FLAG_BITS);
            }
            set_word(general, 13, sp.wrapping_add(4 * frame.len() as u32));
        }
        let state = word(general, STATE_AT) & !THUMB;
        let set = if goes_to & 1 == 1 { THUMB } else { 0 };
        set_word(general, STATE_AT, state | set);
        set_word(general, PC_AT, goes_to & !1);
        Some(Position::claiming(
            standing,
            (self.pool, self.slots),
            mine,
            read,
        ))
    }
}

/// Length of the code that [`unless_off`] adds, in bytes.
const UNLESS_OFF: usize = 20;
