//! The rules of one row, while the instructions of a CIE and an FDE are evaluated.

use super::instruction::Instruction;
use crate::registers::COUNT;
use crate::rows::{Builder, Change, RestId};
use crate::rule::{Cfa, Expression, Place};

/// Limit of remembered states. Compilers nest only a few.
const MAX_REMEMBERED: usize = 64;
/// The flags register has the last number, and CFI has no rules for it.
const REGISTERS: usize = COUNT - 1;

/// The rules that hold at one location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    cfa: Cfa,
    rest: RestId,
    /// The column of the return address.
    column: u64,
}

/// Remembered states. The memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    states: Vec<State>,
    depth: usize,
}

impl Stack {
    pub(crate) fn clear(&mut self) {
        self.depth = 0;
    }
}

/// The reason why an instruction cannot be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsound {
    /// `restore_state` without `remember_state`.
    NothingRemembered,
    /// Too many states are remembered.
    TooDeep,
    /// The instruction changes the CFA's offset, but the CFA is no register plus offset.
    NoRegister,
}

impl State {
    /// A state without a CFA, with the return address in this column.
    pub(crate) fn new(column: u64, rest: RestId) -> State {
        State {
            cfa: Cfa::Unknown,
            rest,
            column,
        }
    }

    /// Applies an instruction that does not end a row. `initial` is the state after the CIE.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        instruction: Instruction<'_>,
        initial: Option<&State>,
        stack: &mut Stack,
        into: &mut Builder,
    ) -> Result<(), Unsound> {
        use Instruction as I;
        match instruction {
            I::Advance(_) | I::SetLocation(_) | I::Nop => {}
            I::DefineCfa(register, offset) => self.cfa = cfa(register, offset),
            I::CfaRegister(register) => match self.cfa {
                Cfa::Register { offset, .. } => self.cfa = cfa(register, offset.into()),
                _ => return Err(Unsound::NoRegister),
            },
            I::CfaOffset(offset) => match self.cfa {
                Cfa::Register { register, .. } => self.cfa = cfa(register.into(), offset),
                _ => return Err(Unsound::NoRegister),
            },
            I::CfaExpression(bytes) => self.cfa = Cfa::Expression(into.expression(bytes)),
            I::Undefined(register) => self.set(register, Place::Undefined, into),
            I::Same(register) => self.set(register, Place::Same, into),
            I::Offset(register, offset) => self.set(register, at(offset, Place::AtCfa), into),
            I::ValueOffset(register, offset) => {
                self.set(register, at(offset, Place::CfaPlus), into)
            }
            I::Register(register, other) => {
                let place = number(other).map_or(Place::Undefined, Place::Register);
                self.set(register, place, into);
            }
            I::Expression(register, bytes) => {
                let expression: Expression = into.expression(bytes);
                self.set(register, Place::AtExpression(expression), into);
            }
            I::ValueExpression(register, bytes) => {
                let expression = into.expression(bytes);
                self.set(register, Place::Value(expression), into);
            }
            I::Restore(register) => self.restore(register, initial, into),
            I::Remember => {
                if stack.depth >= MAX_REMEMBERED {
                    return Err(Unsound::TooDeep);
                }
                stack.states.truncate(stack.depth);
                stack.states.push(*self);
                stack.depth += 1;
            }
            I::RestoreState => {
                let depth = stack.depth.checked_sub(1);
                stack.depth = depth.ok_or(Unsound::NothingRemembered)?;
                *self = stack.states[stack.depth];
            }
            I::NegateRaState => self.rest = into.step(self.rest, Change::Sign),
        }
        Ok(())
    }

    /// Adds the row from `start` to `end`.
    #[inline]
    pub(crate) fn emit(&self, start: u64, end: u64, into: &mut Builder) {
        into.push_rest(start, end, self.cfa, self.rest);
    }

    #[inline]
    fn set(&mut self, register: u64, place: Place, into: &mut Builder) {
        let change = match number(register) {
            Some(_) if register == self.column => Change::Ra(place),
            Some(number) => Change::Saved(number, Some(place)),
            None => return,
        };
        self.rest = into.step(self.rest, change);
    }

    fn restore(&mut self, register: u64, initial: Option<&State>, into: &mut Builder) {
        let (Some(number), Some(initial)) = (number(register), initial) else {
            return;
        };
        let change = if register == self.column {
            Change::Ra(into.ra(initial.rest))
        } else {
            Change::Saved(number, into.place(initial.rest, number))
        };
        self.rest = into.step(self.rest, change);
    }
}

fn cfa(register: u64, offset: i64) -> Cfa {
    match (number(register), i32::try_from(offset)) {
        (Some(register), Ok(offset)) => Cfa::Register { register, offset },
        _ => Cfa::Unknown,
    }
}

fn at(offset: i64, place: impl Fn(i32) -> Place) -> Place {
    i32::try_from(offset).map_or(Place::Undefined, place)
}

fn number(register: u64) -> Option<u8> {
    (register < REGISTERS as u64).then_some(register as u8)
}
