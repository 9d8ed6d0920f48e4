//! States stored for later use, at jumps out of a function.

use super::State;
use super::slots::{Slot, Slots};
use super::value::{Value, Word};
use crate::code::machine::Machine;

/// A state that takes no more memory than its known values.
#[derive(Clone, Debug)]
pub(crate) struct PackedState {
    registers: Box<[Word]>,
    slots: Box<[Slot]>,
    /// See [`State::has_frame`].
    framed: bool,
    root: bool,
    forked: bool,
    signed: bool,
    moved: bool,
    after: u32,
    machine: &'static Machine,
}

impl State {
    pub(in crate::code) fn pack(&self) -> PackedState {
        PackedState {
            registers: self.registers().into(),
            slots: self.slots.all().into(),
            framed: self.has_frame(),
            root: self.root,
            forked: self.forked,
            signed: self.signed,
            moved: self.moved,
            after: self.after,
            machine: self.machine,
        }
    }
}

impl PackedState {
    pub(in crate::code) fn state(&self) -> State {
        let mut state = State::entry(self.machine);
        state.registers[..self.registers.len()].copy_from_slice(&self.registers);
        state.slots = Slots::of(&self.slots);
        state.root = self.root;
        state.forked = self.forked;
        state.signed = self.signed;
        state.moved = self.moved;
        state.after = self.after;
        state
    }

    /// The value of a register.
    pub(in crate::code) fn register(&self, number: u8) -> Value {
        let word = self.registers.get(usize::from(number));
        word.map_or(Value::Unknown, |word| word.unpack())
    }

    /// See [`State::has_frame`].
    pub(in crate::code) fn has_frame(&self) -> bool {
        self.framed
    }
}
