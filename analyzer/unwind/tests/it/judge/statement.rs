//! The statement of one decoder about one instruction, in terms that both decoders share. Apart
//! from the comparison, so that the two sides cannot borrow from each other.

use std::collections::BTreeMap;

use unspool_unwind::code::effect::{Effect, Flow, Instruction};

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Next,
    Jump(u64),
    Branch(u64),
    Call(Option<u64>),
    Return,
    Indirect,
    Trap,
}

/// The value of a register after an instruction, by the values before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A register's earlier value plus an offset in bytes.
    Sum(u8, i64),
    /// A constant.
    Constant(u64),
    /// Any other value.
    Other,
}

/// A whole register that moves between memory and the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Move {
    pub(super) stored: bool,
    pub(super) register: u8,
    /// Base register, and the distance from its value before the instruction.
    pub(super) base: u8,
    pub(super) offset: i64,
}

/// One decoder's statement. Registers have DWARF's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) len: usize,
    pub(super) way: Way,
    /// ARM's condition code; 14 means always.
    pub(super) condition: u8,
    /// Registers that the instruction writes, with their new values.
    pub(super) written: BTreeMap<u8, Value>,
    pub(super) moves: Vec<Move>,
    /// Words of the text that the instruction loads as data.
    pub(super) literals: Vec<u64>,
}

impl Statement {
    pub(super) fn new(len: usize) -> Statement {
        Statement {
            len,
            way: Way::Next,
            condition: 14,
            written: BTreeMap::new(),
            moves: Vec::new(),
            literals: Vec::new(),
        }
    }

    /// The value of `register` after the instruction.
    pub(super) fn value(&self, register: u8) -> Value {
        let value = self.written.get(&register);
        value.copied().unwrap_or(Value::Sum(register, 0))
    }

    /// States that `register` becomes `value`.
    pub(super) fn write(&mut self, register: u8, value: Value) {
        self.written.insert(register, value);
    }

    /// States that `register` moves between the processor and `base + offset`.
    pub(super) fn moves(&mut self, stored: bool, register: u8, base: u8, offset: i64) {
        self.moves.push(Move {
            stored,
            register,
            base,
            offset,
        });
    }

    /// The statement of this project's decoder. `slot` is the size of a register in bytes.
    pub(super) fn own(instruction: &Instruction, slot: i64) -> Statement {
        let mut own = Statement::new(instruction.len.into());
        own.condition = instruction.condition;
        own.way = match instruction.flow {
            Flow::Next => Way::Next,
            Flow::Jump(target) if instruction.condition == 14 => Way::Jump(target.svma),
            Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. } => {
                Way::Branch(target.svma)
            }
            Flow::Call(target) => Way::Call(target.map(|target| target.svma)),
            Flow::Return => Way::Return,
            Flow::Indirect(_) | Flow::Table(_) => Way::Indirect,
            Flow::Trap => Way::Trap,
        };
        for &effect in instruction.effects() {
            own.apply(effect, slot);
        }
        if slot == 4 {
            // A write to the program counter is a jump.
            own.written.remove(&15);
        }
        own
    }

    fn apply(&mut self, effect: Effect, slot: i64) {
        match effect {
            Effect::Add { to, from, by } => {
                let value = match self.value(from) {
                    Value::Sum(register, offset) => Value::Sum(register, offset + i64::from(by)),
                    Value::Constant(_) | Value::Other => Value::Other,
                };
                self.write(to, value);
            }
            Effect::Constant { to, value } => {
                self.write(to, Value::Constant(i64::from(value as i32) as u64));
            }
            Effect::Store { base, offset, mask } | Effect::Load { base, offset, mask } => {
                let stored = matches!(effect, Effect::Store { .. });
                let from = self.value(base);
                let registers = (0..32u8).filter(|register| mask >> register & 1 == 1);
                for (index, register) in registers.enumerate() {
                    if let Value::Sum(base, before) = from {
                        let offset = before + i64::from(offset) + index as i64 * slot;
                        self.moves(stored, register, base, offset);
                    }
                    if !stored {
                        self.write(register, Value::Other);
                    }
                }
            }
            // The kernel writes the result, not the instruction.
            Effect::SystemCall => {}
            _ => {
                let mask = effect.writes();
                for register in (0..32u8).filter(|register| mask >> register & 1 == 1) {
                    self.write(register, Value::Other);
                }
            }
        }
    }
}
