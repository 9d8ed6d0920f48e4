//! The state at one instruction: registers and stack slots relative to the function's entry.
//!
//! Stack addresses are known relative to the CFA. After the stack pointer was aligned or moved by
//! an unknown amount, they are relative to that unknown place (`Base`). There is one such place at
//! a time. A state is copied at every branch, so it is one flat piece of memory, and unused slots
//! are not copied.

mod effects;
mod packed;
mod rule;
mod rule_key;
mod slots;
mod value;

use super::condition::Either;
use super::machine::Machine;
use slots::Slots;
use value::Word;

pub(super) use effects::{Context, JumpTable};
pub(crate) use packed::PackedState;
pub(super) use rule::leb128;
pub(super) use rule_key::RuleKey;
pub use value::Value;

/// Number of tracked registers.
pub(crate) const REGISTERS: usize = 32;
/// No call on the path.
pub(super) const NO_CALL: u32 = u32::MAX;

/// Everything known before one instruction executes.
#[derive(Clone, Debug)]
pub struct State {
    registers: [Word; REGISTERS],
    slots: Slots,
    /// There is no caller: this is the start of a thread.
    root: bool,
    /// A clone system call was just made. In the child its result is 0.
    forked: bool,
    /// The return address in its register carries a pointer authentication code.
    signed: bool,
    /// A loop has moved the base of addresses by an unknown amount.
    moved: bool,
    /// An input of the rule has changed since this was last cleared.
    pub(super) dirty: bool,
    /// The stack pointer has one of two values, depending on the flags. Set only for instructions
    /// to show, never on a path.
    pub(super) either: Option<Either>,
    /// The last call on all paths to here since the last join; [`NO_CALL`] if there is none. See
    /// `flow`.
    pub(super) after: u32,
    machine: &'static Machine,
}

impl State {
    /// The state at a function's first instruction.
    pub(crate) fn entry(machine: &'static Machine) -> State {
        let mut registers = [Word::UNKNOWN; REGISTERS];
        for number in 0..machine.registers {
            if machine.follows(number) || number == machine.result {
                registers[usize::from(number)] = Word::entry(number);
            }
        }
        registers[usize::from(machine.sp)] = Word::cfa(-machine.entry_depth);
        let mut state = State {
            registers,
            slots: Slots::NONE,
            root: false,
            forked: false,
            signed: false,
            moved: false,
            dirty: true,
            either: None,
            after: NO_CALL,
            machine,
        };
        if machine.arch == unspool_image::Arch::Arm {
            state.registers[15] = Word::UNKNOWN;
        }
        if !machine.link {
            state.store(Value::Cfa(-machine.slot), Value::Entry(machine.ra));
        }
        state
    }

    /// Like [`State::entry`], with a value in `register` that names the argument in it.
    pub(super) fn with_argument(machine: &'static Machine, register: u8) -> State {
        let mut state = State::entry(machine);
        state.set(register, Value::Argument(register));
        state
    }

    /// The state at a program's first instruction, which has no caller.
    pub(crate) fn root(machine: &'static Machine) -> State {
        let mut state = State::entry(machine);
        state.root = true;
        state
    }

    /// The state at the first instruction of a function that is reached by a jump. The return
    /// address is in the stack slot at `cfa + slot`, and the stack pointer is `depth` below the
    /// CFA.
    pub(super) fn pushed(machine: &'static Machine, depth: i32, slot: i32) -> State {
        let mut state = State::entry(machine);
        state.registers[usize::from(machine.sp)] = Word::cfa(depth.wrapping_neg());
        state.registers[usize::from(machine.ra)] = Word::UNKNOWN;
        state.store(Value::Cfa(slot), Value::Entry(machine.ra));
        state
    }

    /// Copies `other`, a state of the same machine.
    #[inline]
    pub(super) fn copy_from(&mut self, other: &State) {
        // All registers, because copying a fixed size is faster than copying half of it.
        self.registers = other.registers;
        self.slots.copy_from(&other.slots);
        self.root = other.root;
        self.forked = other.forked;
        self.signed = other.signed;
        self.moved = other.moved;
        self.dirty = other.dirty;
        self.either = other.either;
        self.after = other.after;
    }

    /// The value of a register.
    #[inline]
    pub fn register(&self, number: u8) -> Value {
        self.word(number).unpack()
    }

    #[inline]
    fn word(&self, number: u8) -> Word {
        let word = self.registers.get(usize::from(number));
        word.copied().unwrap_or(Word::UNKNOWN)
    }

    /// Whether a register holds its entry value.
    #[inline]
    pub(super) fn is_as_at_entry(&self, register: u8) -> bool {
        self.word(register) == Word::entry(register)
    }

    fn registers(&self) -> &[Word] {
        &self.registers[..usize::from(self.machine.registers)]
    }

    /// The value of the stack slot at `at`, a [`Value::Cfa`] or [`Value::Base`].
    pub fn slot(&self, at: Value) -> Value {
        self.slots.at(Word::pack(at)).unpack()
    }

    /// The stack slots with this value, as distances from the CFA.
    pub(super) fn slots_with(&self, value: Value) -> impl Iterator<Item = i32> {
        let wanted = Word::pack(value);
        let slots = self.slots.all().iter();
        let slots = slots.filter(move |slot| slot.value == wanted);
        slots.filter_map(|slot| match slot.at.unpack() {
            Value::Cfa(distance) => Some(distance),
            _ => None,
        })
    }

    /// Distance of the stack pointer below the CFA, if known.
    pub fn depth(&self) -> Option<i32> {
        match self.register(self.machine.sp) {
            Value::Cfa(offset) => Some(offset.wrapping_neg()),
            _ => None,
        }
    }

    /// Whether the stack pointer differs from its entry value, or is unknown.
    pub(super) fn has_frame(&self) -> bool {
        self.word(self.machine.sp) != Word::cfa(self.machine.entry_depth.wrapping_neg())
    }

    /// Whether the stack pointer was moved by an unknown amount.
    pub(super) fn is_anchored(&self) -> bool {
        self.word(self.machine.sp).is_base()
    }

    /// Whether this is the start of a thread.
    pub fn is_root(&self) -> bool {
        self.root
    }

    /// Whether the return address is signed.
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Whether calls leave the return address in a register.
    pub fn has_link_register(&self) -> bool {
        self.machine.link
    }

    /// Makes the stack pointer the new base of addresses, unless another register still uses the
    /// old base.
    fn set_anchor(&mut self) {
        let sp = usize::from(self.machine.sp);
        let mut registers = self.registers().iter().enumerate();
        let others = registers.any(|(n, word)| n != sp && word.is_base());
        self.dirty = true;
        if others {
            self.registers[sp] = Word::UNKNOWN;
            return;
        }
        self.slots.retain(|slot| !slot.at.is_base());
        for slot in self.slots.all_mut() {
            if slot.value.is_base() {
                slot.value = Word::UNKNOWN;
            }
        }
        self.registers[sp] = Word::base(0);
        self.moved = false;
    }

    /// Switches to another stack. Control will return through `ra` to a frame `depth` above the
    /// stack pointer; its registers are unknown.
    pub(super) fn switched(&mut self, ra: u8, depth: i32) {
        let machine = self.machine;
        self.dirty |= self.slots.retain(|_| false);
        for number in 0..machine.registers {
            let word = self.word(number);
            if word.is_address() || word.entry_of().is_some_and(|of| machine.follows(of)) {
                self.set(number, Value::Unknown);
            }
        }
        self.set(machine.sp, Value::Cfa(depth.wrapping_neg()));
        self.set(ra, Value::Entry(machine.ra));
    }

    /// The state at a landing pad for an exception that passed a call here. The stack is at most
    /// `depth` deep.
    pub(super) fn at_landing_pad(&self, depth: i32) -> State {
        let mut state = self.clone();
        state.after = NO_CALL;
        if state.depth().is_some_and(|own| own > depth) {
            state.set(state.machine.sp, Value::Cfa(depth.wrapping_neg()));
        }
        state
    }

    /// Applies a call that returned. The callee preserves the registers in `preserved`, whatever
    /// the calling convention.
    pub(super) fn called(&mut self, preserved: u32) {
        let machine = self.machine;
        self.clobber(!machine.preserved & !(1 << machine.sp) & !preserved);
        let sp = self.word(machine.sp);
        if sp.is_base() {
            self.dirty |= self
                .slots
                .retain(|slot| !(slot.at.is_base() && slot.at < sp));
        }
    }

    /// Applies that a system call's result is zero. After clone, this is the child.
    pub(super) fn zero(&mut self) {
        if self.forked {
            self.root = true;
            self.forked = false;
            self.dirty = true;
        }
    }

    /// Applies that a system call's result is not zero.
    pub(super) fn nonzero(&mut self) {
        self.forked = false;
    }

    /// Whether a clone system call was just made, so that [`State::zero`] and [`State::nonzero`]
    /// matter.
    pub(super) fn has_forked(&self) -> bool {
        self.forked
    }

    /// Whether a call would make the frame unknown, because only caller-saved registers know it.
    pub(super) fn loses_frame_at_call(&self) -> bool {
        let machine = self.machine;
        let is_cfa = |&register: &u8| self.word(register).is_cfa();
        !is_cfa(&machine.sp)
            && self.dereference().is_none()
            && machine.frames.iter().any(is_cfa)
            && !bits(machine.preserved).any(|register| is_cfa(&register))
    }

    /// Whether both states know the frame by the same register. Their stack pointers may then
    /// differ, as after `alloca`.
    pub(super) fn shares_frame(&self, other: &State) -> bool {
        bits(self.machine.preserved).any(|register| {
            let word = self.word(register);
            word.is_cfa() && word == other.word(register)
        })
    }

    /// The same state relative to `base + by`.
    fn rebased(&self, by: i32) -> State {
        let mut state = self.clone();
        let moved = |word: Word| match word.unpack() {
            Value::Base(offset) => offset.checked_sub(by).map_or(Word::UNKNOWN, Word::base),
            _ => word,
        };
        for word in &mut state.registers {
            *word = moved(*word);
        }
        for slot in state.slots.all_mut() {
            slot.at = moved(slot.at);
            slot.value = moved(slot.value);
        }
        state.dirty = true;
        state
    }

    /// Meets the state at the end of a loop with the one at its head. An inner loop that moved the
    /// stack pointer by an unknown amount is assumed to restore it, because nothing else could tell
    /// its value.
    pub(super) fn meet_loop_end(&mut self, other: &State) -> bool {
        let sp = self.machine.sp;
        let both = self.word(sp).is_base() && other.word(sp).is_base();
        if self.moved || !other.moved || !both {
            return self.meet(other);
        }
        let mut balanced = other.clone();
        balanced.moved = false;
        for word in &mut balanced.registers {
            if word.is_base() {
                *word = Word::UNKNOWN;
            }
        }
        balanced.registers[usize::from(sp)] = self.word(sp);
        balanced
            .slots
            .retain(|slot| !slot.at.is_base() && !slot.value.is_base());
        for slot in self.slots.all() {
            if slot.at.is_base() {
                balanced.store(slot.at.unpack(), slot.value.unpack());
            }
        }
        self.meet(&balanced)
    }

    /// Keeps the values that both paths agree on. Returns whether `self` changed.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        if self.is_same(other) {
            return false;
        }
        let mut changed = false;
        if let (Value::Base(own), Value::Base(theirs)) = (
            self.register(self.machine.sp),
            other.register(self.machine.sp),
        ) && own != theirs
        {
            // A loop moves the stack pointer: express both states relative to its current value.
            let rebased = other.rebased(theirs);
            if own != 0 {
                *self = self.rebased(own);
                changed = true;
            }
            changed |= !self.moved;
            self.moved = true;
            return self.meet_rebased(&rebased) | changed;
        }
        self.meet_rebased(other)
    }

    /// Whether both states are equal.
    fn is_same(&self, other: &State) -> bool {
        // All registers, because comparing a fixed number is faster than comparing half of it.
        let registers = self.registers.iter().zip(&other.registers);
        let differ = registers.fold(0, |all, (mine, theirs)| all | mine.bits() ^ theirs.bits());
        let flags = |state: &State| (state.root, state.forked, state.signed, state.moved);
        differ == 0
            && self.after == other.after
            && flags(self) == flags(other)
            && self.slots.all() == other.slots.all()
    }

    fn meet_rebased(&mut self, other: &State) -> bool {
        let count = usize::from(self.machine.registers);
        let mut changed = other.moved && !self.moved;
        self.moved |= other.moved;
        for (mine, theirs) in self.registers[..count].iter_mut().zip(&other.registers) {
            let both = mine.meet(*theirs);
            changed |= both != *mine;
            *mine = both;
        }
        changed |= self.slots.meet(&other.slots);
        // If one path has a caller, its rules are used.
        if self.root && !other.root {
            self.root = false;
            changed = true;
        }
        self.forked &= other.forked;
        if self.signed && !other.signed {
            self.signed = false;
            changed = true;
        }
        if self.after != other.after && self.after != NO_CALL {
            self.after = NO_CALL;
            changed = true;
        }
        self.dirty |= changed;
        changed
    }

    fn clobber(&mut self, mask: u32) {
        let machine = self.machine;
        let mask = mask & (u32::MAX >> (32 - u32::from(machine.registers)));
        for register in bits(mask & !(1 << machine.sp)) {
            self.put(register, Word::UNKNOWN);
        }
        if mask >> machine.sp & 1 == 1 {
            self.set(machine.sp, Value::Unknown);
        }
    }

    fn set(&mut self, register: u8, value: Value) {
        if register >= self.machine.registers {
            return;
        }
        let word = Word::pack(value);
        if self.put(register, word) && register == self.machine.sp {
            // Values below sp do not last.
            match value {
                Value::Cfa(_) => {
                    self.dirty |= self
                        .slots
                        .retain(|slot| slot.at.is_cfa() && slot.at >= word);
                }
                Value::Base(offset) => {
                    // System V ABI, 3.2.2: on x86-64 128 bytes below sp last until a call.
                    let zone = if self.machine.link { 0 } else { 128 };
                    let lowest = Word::base(offset.saturating_sub(zone));
                    self.dirty |= self.slots.retain(|slot| {
                        let lowest = if slot.value.is_cfa() { lowest } else { word };
                        !slot.at.is_base() || slot.at >= lowest
                    });
                }
                _ => {}
            }
        }
    }

    /// Sets a register that exists. Returns whether it changed.
    #[inline]
    fn put(&mut self, register: u8, word: Word) -> bool {
        let machine = self.machine;
        let place = &mut self.registers[usize::from(register)];
        let before = std::mem::replace(place, word);
        if before == word {
            return false;
        }
        // While the stack pointer gives the CFA, it does not matter which other registers do.
        let by_sp = register != machine.sp && self.word(machine.sp).is_cfa();
        let relevant = |word: Word| match word.entry_of() {
            Some(of) => machine.follows(of),
            None => word.is_base() || word.is_cfa() && !by_sp,
        };
        self.dirty |= relevant(before) || relevant(word) || register == machine.ra;
        true
    }

    fn store(&mut self, at: Value, value: Value) {
        let worth = match value {
            Value::Entry(of) => self.machine.follows(of),
            Value::Unknown => false,
            _ => true,
        };
        let (at, value) = (Word::pack(at), Word::pack(value));
        if at.is_address() {
            self.dirty |= self.slots.store(at, value, worth);
        }
    }
}

/// The numbers of the set bits, lowest first.
#[inline]
pub(super) fn bits(mask: u32) -> impl Iterator<Item = u8> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let bit = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (bit < 32).then_some(bit as u8)
    })
}
