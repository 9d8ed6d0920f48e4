//! The rules of one row while a CIE's and an FDE's instructions are carried out.

use super::instruction::Instruction;
use crate::registers::COUNT;
use crate::rows::{Builder, Draft, SavedId, entry};
use crate::rule::{Cfa, Expression, Place};

/// Remembered states; no compiler nests them deeper than a few.
const DEPTH: usize = 64;
/// The flags register has the last number; CFI has no rules for it.
const REGISTERS: usize = COUNT - 1;

/// The rules that hold at one location.
#[derive(Debug)]
pub(crate) struct State {
    cfa: Cfa,
    /// Packed places; those without a bit in `stated` have no rule.
    places: [u64; REGISTERS],
    stated: u64,
    signed: bool,
    /// Of `places`, if they were interned as they are.
    saved: Option<SavedId>,
}

/// Remembered states. Their room is used again.
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

/// Why an instruction cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsound {
    /// `restore_state` without `remember_state`.
    NothingRemembered,
    /// States are remembered without end.
    TooDeep,
    /// The CFA's offset is set while it is not a register's.
    NoRegister,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            cfa: Cfa::Unknown,
            places: [0; REGISTERS],
            stated: 0,
            signed: false,
            saved: None,
        }
    }

    /// Become as `other` is. Only what is stated is copied: a few registers of many, and this is done for each FDE and
    /// for each state that is remembered.
    #[inline]
    pub(crate) fn become_as(&mut self, other: &State) {
        let mut left = other.stated;
        while let number @ 0..REGISTERS = left.trailing_zeros() as usize {
            self.places[number] = other.places[number];
            left &= left - 1;
        }
        self.cfa = other.cfa;
        self.stated = other.stated;
        self.signed = other.signed;
        self.saved = other.saved;
    }

    /// Carry out what does not end a row. `initial` is the state the CIE leaves.
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
            I::Undefined(register) => self.set(register, Place::Undefined),
            I::Same(register) => self.set(register, Place::Same),
            I::Offset(register, offset) => self.set(register, at(offset, Place::AtCfa)),
            I::ValueOffset(register, offset) => self.set(register, at(offset, Place::CfaPlus)),
            I::Register(register, other) => {
                let place = number(other).map_or(Place::Undefined, Place::Register);
                self.set(register, place);
            }
            I::Expression(register, bytes) => {
                let expression: Expression = into.expression(bytes);
                self.set(register, Place::AtExpression(expression));
            }
            I::ValueExpression(register, bytes) => {
                let expression = into.expression(bytes);
                self.set(register, Place::Value(expression));
            }
            I::Restore(register) => self.restore(register, initial),
            I::Remember => {
                if stack.depth >= DEPTH {
                    return Err(Unsound::TooDeep);
                }
                if stack.depth == stack.states.len() {
                    stack.states.push(State::new());
                }
                stack.states[stack.depth].become_as(self);
                stack.depth += 1;
            }
            I::RestoreState => {
                let depth = stack.depth.checked_sub(1);
                stack.depth = depth.ok_or(Unsound::NothingRemembered)?;
                self.become_as(&stack.states[stack.depth]);
            }
            I::NegateRaState => self.signed = !self.signed,
        }
        Ok(())
    }

    /// The row that holds from `start` to `end`.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        start: u64,
        end: u64,
        (ra_column, ra_default): (u64, Place),
        signal_frame: bool,
        into: &mut Builder,
    ) {
        if start >= end {
            return;
        }
        let ra_bit = 1u64.checked_shl(ra_column as u32).unwrap_or(0);
        let ra = if self.stated & ra_bit != 0 {
            Place::unpack(self.places[ra_column as usize])
        } else {
            ra_default
        };
        let saved = match self.saved {
            Some(saved) => saved,
            None => {
                let mut left = self.stated & !ra_bit;
                let places = &self.places;
                let list = std::iter::from_fn(|| {
                    let number = left.trailing_zeros() as u8;
                    left &= left.wrapping_sub(1);
                    let place = places.get(usize::from(number))?;
                    Some(entry(number, *place))
                });
                let saved = into.saved(list);
                self.saved = Some(saved);
                saved
            }
        };
        let draft = Draft {
            cfa: self.cfa,
            ra,
            saved: &[],
            signal_frame,
            signed: self.signed,
        };
        into.push_saved(start, end, &draft, saved);
    }

    fn set(&mut self, register: u64, place: Place) {
        if let Some(number) = number(register) {
            self.places[usize::from(number)] = place.pack();
            self.stated |= 1 << number;
            self.saved = None;
        }
    }

    fn restore(&mut self, register: u64, initial: Option<&State>) {
        let (Some(number), Some(initial)) = (number(register), initial) else {
            return;
        };
        self.places[usize::from(number)] = initial.places[usize::from(number)];
        self.stated = self.stated & !(1 << number) | initial.stated & 1 << number;
        self.saved = None;
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
