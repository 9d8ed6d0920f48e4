//! The fast tier: walks a stack with pc, stack pointer and frame pointers only.
//!
//! Most rules fit one word ([`Quick`]), and stacks repeat. A [`Tracer`] remembers the word of each
//! pc, and which pc came next the last time. A step along a known stack is then one comparison, and
//! the loads of the return address and the saved frame pointer. The fast tier leaves everything
//! else to [`walk`](crate::walk()): expressions, signal frames, frame-pointer chains, scanning,
//! unusual base registers. [`Tracer::trace`] always returns the frames that `walk` returns.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

use unspool_image::Arch;

use crate::memory::StackMemory;
use crate::modules::ModuleMap;
use crate::registers::{RegisterFile, returns_to, roles};
use crate::rows::{At, Quick, THUMB_FP};
use crate::rule::Source;
use crate::walk::{StackEnd, WalkOptions, is_trampoline, walk};

/// Number of slots: 24 KiB, which the L1 cache holds beside a stack.
const SLOTS: usize = 1024;

/// A frame in the fast tier.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Next instruction or return address, Thumb bit removed.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    fp: u64,
    /// ARM: r7, where Thumb code keeps its frame pointer.
    r7: u64,
    lr: u64,
    known: u8,
    /// `pc` is the next instruction, not a return address.
    exact: bool,
    slot: u16,
    expected: u16,
}

const FP: u8 = 1;
const R7: u8 = 2;
const LR: u8 = 4;

impl Position {
    /// The position of a thread with these registers. `None` without pc or stack pointer.
    pub fn new(registers: &RegisterFile) -> Option<Position> {
        let arch = registers.arch();
        let roles = roles(arch);
        let mut position = Position {
            pc: registers.pc()?,
            sp: registers.sp()?,
            fp: 0,
            r7: 0,
            lr: 0,
            known: 0,
            exact: true,
            slot: 0,
            expected: 0,
        };
        if let Some(fp) = registers.get(roles.fp) {
            position.fp = fp;
            position.known |= FP;
        }
        if let Some(r7) = registers.get(THUMB_FP).filter(|_| arch == Arch::Arm) {
            position.r7 = r7;
            position.known |= R7;
        }
        if let Some(lr) = roles.lr.and_then(|lr| registers.get(lr)) {
            position.lr = lr;
            position.known |= LR;
        }
        Some(position)
    }

    /// The same position, with `pc` taken as a return address.
    pub fn calling(self) -> Position {
        Position {
            exact: false,
            ..self
        }
    }

    /// Sets the frame pointer.
    pub fn set_fp(&mut self, fp: u64) {
        self.fp = fp;
        self.known |= FP;
    }

    /// The frame pointer, if it is known.
    pub fn fp(&self) -> Option<u64> {
        (self.known & FP != 0).then_some(self.fp)
    }

    /// `pc` itself if it is the next instruction, else an address inside the call before it.
    #[inline]
    pub fn address_for_lookup(&self) -> u64 {
        self.pc.wrapping_sub(u64::from(!self.exact))
    }
}

/// The reason why a step found no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The stack ends here, as [`walk`](crate::walk()) defines it.
    End(StackEnd),
    /// The step needs more registers, or more than its rule: [`walk`](crate::walk()) decides.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Address for lookup. The highest bit is set if it is exact.
    key: u64,
    quick: Quick,
    /// The slot of the caller's pc in the last walk.
    next: u16,
}

const EMPTY: Slot = Slot {
    key: u64::MAX,
    quick: Quick::SLOW,
    next: 0,
};

/// Walks stacks, and remembers the rules of the addresses it has met. Use one per thread.
#[derive(Clone, Debug)]
pub struct Tracer {
    slots: Box<[Slot; SLOTS]>,
    /// The generation of the module map that the slots were filled from.
    generation: u64,
}

impl Default for Tracer {
    fn default() -> Self {
        Tracer {
            slots: Box::new([EMPTY; SLOTS]),
            generation: 0,
        }
    }
}

impl Tracer {
    /// An empty tracer.
    pub fn new() -> Tracer {
        Tracer::default()
    }

    /// Puts the pcs of a stack into `pcs`, innermost first. They equal those of
    /// [`walk`](crate::walk()), which is used where the fast tier cannot continue.
    pub fn trace<M: StackMemory>(
        &mut self,
        modules: &ModuleMap,
        registers: &RegisterFile,
        memory: &mut M,
        options: &WalkOptions,
        pcs: &mut Vec<u64>,
    ) -> StackEnd {
        pcs.clear();
        if options.prefer.is_empty()
            && let Some(mut position) = Position::new(registers)
        {
            let size = modules.arch().address_size();
            let mut read = |avma| memory.read_pointer(avma, size).ok();
            loop {
                // Only the step from the last pc shows whether it is code. Without that step,
                // `walk` has to decide.
                if pcs.len() >= options.max_frames {
                    break;
                }
                pcs.push(position.pc);
                match self.step(modules, &mut position, &mut read) {
                    Ok(()) => {}
                    Err(Stop::End(end)) => return end,
                    Err(Stop::Full) => break,
                }
            }
            pcs.clear();
        }
        let stack = walk(modules, registers, memory, options);
        pcs.extend(stack.frames.iter().map(|frame| frame.pc));
        stack.end
    }

    /// Steps to the caller. `read` returns the pointer at an address of the stack. After a
    /// [`Stop`], the position is no longer valid.
    #[inline]
    pub fn step(
        &mut self,
        modules: &ModuleMap,
        at: &mut Position,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Result<(), Stop> {
        if self.generation != modules.generation() {
            self.forget(modules.generation());
        }
        let key = at.address_for_lookup() ^ u64::from(at.exact) << 63;
        let expected = usize::from(at.expected) % SLOTS;
        let slot = &self.slots[expected];
        let quick = if slot.key == key {
            (at.slot, at.expected) = (expected as u16, slot.next);
            slot.quick
        } else {
            self.look(modules, at, key)
        };
        match modules.arch() {
            Arch::X86_64 => apply::<X86_64>(quick, at, read),
            Arch::Aarch64 => apply::<Aarch64>(quick, at, read),
            _ => apply::<Arm>(quick, at, read),
        }
    }

    /// Looks up the word of a frame that was not predicted.
    fn look(&mut self, modules: &ModuleMap, at: &mut Position, key: u64) -> Quick {
        let index = slot_of(key);
        self.slots[usize::from(at.slot) % SLOTS].next = index as u16;
        at.slot = index as u16;
        let slot = &mut self.slots[index];
        if slot.key == key {
            at.expected = slot.next;
            return slot.quick;
        }
        let quick = find(modules, at);
        *slot = Slot {
            key,
            quick,
            next: 0,
        };
        at.expected = 0;
        quick
    }

    #[cold]
    fn forget(&mut self, generation: u64) {
        self.slots.fill(EMPTY);
        self.generation = generation;
    }
}

/// Fibonacci hashing: return addresses differ in their middle bits.
#[inline]
fn slot_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize
}

/// The word of a frame; [`Quick::SLOW`] where `walk` would not use a rule.
#[inline(always)]
fn find(modules: &ModuleMap, at: &Position) -> Quick {
    let Some((module, svma)) = modules.find(at.address_for_lookup()) else {
        return Quick::SLOW;
    };
    match module.table.quick(svma) {
        // A handler returns to a trampoline's first instruction, so the code before it does not
        // matter.
        Some((_, ends)) if (ends || at.exact) && is_at_trampoline(modules, at) => Quick::SLOW,
        Some((quick, _)) => quick,
        None => Quick::SLOW,
    }
}

#[inline(never)]
fn is_at_trampoline(modules: &ModuleMap, at: &Position) -> bool {
    is_trampoline(modules, at.pc, at.exact)
}

/// The constants of an architecture that a step needs.
trait Machine {
    /// log2 of a pointer's size.
    const LOG: u32;
    const ARCH: Arch;
    /// Bytes below the stack pointer that leaf functions may use.
    const RED_ZONE: u64;
    const SP: u8;
    const FP: u8;
    /// A mask and a value that most words match. In these the CFA is relative to one of two
    /// registers, the return address is at an offset from it, and the word is plain.
    const USUAL: (u64, u64);

    /// The address that a return address refers to.
    #[inline(always)]
    fn pc(ra: u64) -> u64 {
        returns_to(Self::ARCH, ra)
    }
}

/// Matches a plain word whose return address is at an offset from the CFA.
const PLAIN: (u64, u64) = (3 << 9 | 1 << 12 | 1 << 14, 1 << 9);

struct X86_64;
struct Aarch64;
struct Arm;

impl Machine for X86_64 {
    const LOG: u32 = 3;
    const ARCH: Arch = Arch::X86_64;
    const RED_ZONE: u64 = 128;
    const SP: u8 = 7;
    const FP: u8 = 6;
    const USUAL: (u64, u64) = (0b11_1110 | PLAIN.0, 0b00_0110 | PLAIN.1);
}

impl Machine for Aarch64 {
    const LOG: u32 = 3;
    const ARCH: Arch = Arch::Aarch64;
    const RED_ZONE: u64 = 0;
    const SP: u8 = 31;
    const FP: u8 = 29;
    const USUAL: (u64, u64) = (0b11_1101 | PLAIN.0, 0b01_1101 | PLAIN.1);
}

impl Machine for Arm {
    const LOG: u32 = 2;
    const ARCH: Arch = Arch::Arm;
    const RED_ZONE: u64 = 0;
    const SP: u8 = 13;
    const FP: u8 = 11;
    // There are three registers, and r7 to restore.
    const USUAL: (u64, u64) = (0, 1);
}

/// The caller's value of a register that is unchanged, or saved relative to the CFA.
#[inline(always)]
fn restore<M: Machine>(
    saved: bool,
    offset: i64,
    cfa: u64,
    sp: u64,
    value: &mut u64,
    (known, bit): (&mut u8, u8),
    read: &mut impl FnMut(u64) -> Option<u64>,
) {
    let mask = if M::LOG == 2 { 0xffff_ffff } else { u64::MAX };
    // ARM has two registers to check and rarely saves both.
    if M::LOG == 2 && !saved {
        return;
    }
    // If it was not saved, any word of the frame is read and ignored.
    let offset = select_unpredictable(saved, offset, -(1 << M::LOG));
    let place = cfa.wrapping_add_signed(offset) & mask;
    // A register saved below sp has been popped again, even if the compiler's rule does not say so.
    if place.wrapping_add(M::RED_ZONE) < sp {
        return;
    }
    match read(place) {
        Some(word) => {
            *value = select_unpredictable(saved, word, *value);
            *known |= select_unpredictable(saved, bit, 0);
        }
        None if !saved || place < sp => {}
        None => *known &= !bit,
    }
}

/// The same for rules that lose a frame register, or leave it to the full rule.
#[cold]
fn unusual<M: Machine>(
    quick: Quick,
    cfa: u64,
    at: &mut Position,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Result<(), Stop> {
    let registers = [
        (quick.fp(M::LOG), &mut at.fp, FP),
        (quick.r7(M::LOG), &mut at.r7, R7),
    ];
    for (place, value, bit) in registers {
        match place {
            At::Same => {}
            At::Cfa(offset) => {
                restore::<M>(true, offset, cfa, at.sp, value, (&mut at.known, bit), read);
            }
            At::Undefined => at.known &= !bit,
            At::Elsewhere => return Err(Stop::Full),
        }
    }
    Ok(())
}

#[inline(always)]
fn apply<M: Machine>(
    quick: Quick,
    at: &mut Position,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Result<(), Stop> {
    // Most frames are callers whose words have one form.
    if quick.0 & M::USUAL.0 == M::USUAL.1 && !at.exact && at.known & FP != 0 {
        let base = select_unpredictable(quick.register() == M::SP, at.sp, at.fp);
        let cfa = base.wrapping_add_signed(quick.cfa_offset(M::LOG));
        if let Some(ra) = read(cfa.wrapping_add_signed(quick.ra_offset(M::LOG)))
            && M::pc(ra) != 0
            && cfa > at.sp
        {
            let (saved, offset) = quick.plain_fp(M::LOG);
            let known = (&mut at.known, FP);
            restore::<M>(saved, offset, cfa, at.sp, &mut at.fp, known, read);
            at.known &= !LR;
            at.sp = cfa;
            at.pc = M::pc(ra);
            return Ok(());
        }
    }
    apply_any::<M>(quick, at, read)
}

#[inline]
fn apply_any<M: Machine>(
    quick: Quick,
    at: &mut Position,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Result<(), Stop> {
    let is_arm = M::LOG == 2;
    let mask = if is_arm { 0xffff_ffff } else { u64::MAX };
    let ra_at = quick.ra(M::LOG);
    // Values that differ from step to step are selected without a branch. A branch on a value that
    // was just loaded would delay the next step's loads.
    let register = quick.register();
    let needs = select_unpredictable(register == M::SP, 0, FP);
    let base = select_unpredictable(register == M::SP, at.sp, at.fp);
    let (needs, base) = if is_arm {
        let is_r7 = register == THUMB_FP;
        (
            select_unpredictable(is_r7, R7, needs),
            select_unpredictable(is_r7, at.r7, base),
        )
    } else {
        (needs, base)
    };
    let usual = register == M::SP || register == M::FP || is_arm && register == THUMB_FP;
    if !usual || at.known & needs != needs {
        let outermost = !quick.is_slow() && ra_at == At::Undefined;
        return Err(if outermost {
            Stop::End(StackEnd::Complete)
        } else {
            Stop::Full
        });
    }
    let cfa = base.wrapping_add_signed(quick.cfa_offset(M::LOG)) & mask;
    let ra = match ra_at {
        At::Cfa(offset) => read(cfa.wrapping_add_signed(offset) & mask).ok_or(Stop::Full)?,
        At::Same if at.exact && at.known & LR != 0 && M::ARCH != Arch::X86_64 => at.lr,
        At::Undefined => return Err(Stop::End(StackEnd::Complete)),
        _ => return Err(Stop::Full),
    };
    // EHABI promises exidx rules only at call sites.
    if at.exact && quick.source() == Source::Exidx {
        return Err(Stop::Full);
    }
    let pc = M::pc(ra);
    if pc == 0 {
        return Err(Stop::End(StackEnd::NullReturn));
    }
    let leaf = at.exact && M::ARCH != Arch::X86_64;
    if cfa < at.sp || cfa == at.sp && !leaf {
        return Err(Stop::Full);
    }
    if quick.is_plain() {
        let (saved, offset) = quick.plain_fp(M::LOG);
        restore::<M>(
            saved,
            offset,
            cfa,
            at.sp,
            &mut at.fp,
            (&mut at.known, FP),
            read,
        );
        if is_arm {
            let (saved, offset) = quick.plain_r7(M::LOG);
            restore::<M>(
                saved,
                offset,
                cfa,
                at.sp,
                &mut at.r7,
                (&mut at.known, R7),
                read,
            );
        }
    } else {
        unusual::<M>(quick, cfa, at, read)?;
    }
    at.known &= !LR;
    at.exact = false;
    at.sp = cfa;
    at.pc = pc;
    Ok(())
}
