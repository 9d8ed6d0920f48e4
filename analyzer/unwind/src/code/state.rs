//! What is known at one instruction: registers and stack slots relative to the function's entry.

use super::effect::Effect;
use crate::rule::{Cfa, Place};

/// Registers tracked.
pub(crate) const REGISTERS: usize = 16;
/// Stack slots tracked; more are forgotten, which makes their registers unknown, never wrong.
const MOST_SLOTS: usize = 64;
const SP: usize = 13;
const LR: u8 = 14;
/// Registers that a call preserves.
const PRESERVED: u32 = 0b1111_1111_0000;

/// A register's or slot's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Anything.
    Unknown,
    /// What this register held when the function was entered.
    Entry(u8),
    /// `cfa + offset`
    Cfa(i32),
    /// A constant.
    Constant(u32),
}

/// Everything known before one instruction executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    registers: [Value; REGISTERS],
    /// Offset from the CFA, content; sorted.
    slots: Vec<(i32, Value)>,
    /// There is no caller: the start of a thread.
    root: bool,
    /// A clone system call was just made: the child is where r0 is 0.
    forked: bool,
    /// The last call on every path to here since one joined another; see `flow`.
    pub(super) after: Option<u32>,
}

impl State {
    /// At a function's first instruction.
    pub fn entry() -> State {
        let mut registers = [Value::Unknown; REGISTERS];
        for (number, value) in registers.iter_mut().enumerate() {
            *value = Value::Entry(number as u8);
        }
        registers[SP] = Value::Cfa(0);
        registers[15] = Value::Unknown;
        State {
            registers,
            slots: Vec::new(),
            root: false,
            forked: false,
            after: None,
        }
    }

    /// A register's content.
    pub fn register(&self, number: u8) -> Value {
        self.registers
            .get(usize::from(number))
            .copied()
            .unwrap_or(Value::Unknown)
    }

    /// How far the stack pointer is below the CFA.
    pub fn depth(&self) -> Option<i32> {
        match self.registers[SP] {
            Value::Cfa(offset) => Some(offset.wrapping_neg()),
            _ => None,
        }
    }

    /// Every place where the entry value of `register` is now.
    pub fn places_of(&self, register: u8) -> impl Iterator<Item = Place> {
        let wanted = Value::Entry(register);
        let same = (self.register(register) == wanted).then_some(Place::Same);
        let other = (0..15u8)
            .filter(move |&n| n != register && self.register(n) == wanted)
            .map(Place::Register);
        let slots = self
            .slots
            .iter()
            .filter(move |slot| slot.1 == wanted)
            .map(|slot| Place::AtCfa(slot.0));
        same.into_iter().chain(slots).chain(other)
    }

    /// CFA, return address and saved registers, where all of the first two are known.
    pub(crate) fn rule(&self, saved: &mut Vec<(u8, Place)>) -> Option<(Cfa, Place)> {
        saved.clear();
        if self.root {
            return Some((Cfa::Unknown, Place::Undefined));
        }
        let base = |number: usize| match self.registers[number] {
            Value::Cfa(offset) => Some(Cfa::Register {
                register: number as u8,
                offset: offset.wrapping_neg(),
            }),
            _ => None,
        };
        let cfa = [SP, 7, 11]
            .into_iter()
            .chain([4, 5, 6, 8, 9, 10, 12])
            .find_map(base)?;
        // Start code clears lr (and fp) to say that nothing called it.
        // A row is looked up inside the call instruction too, which is about to overwrite lr: the stack, if the
        // return address is there, is the better place.
        let stored = self
            .places_of(LR)
            .find(|place| matches!(place, Place::AtCfa(_)));
        let ra = match stored.or_else(|| self.places_of(LR).next()) {
            Some(place) => place,
            None if self.registers[usize::from(LR)] == Value::Constant(0) => Place::Undefined,
            None => return None,
        };
        for register in 4..=11u8 {
            match self.places_of(register).next() {
                Some(Place::Same) => {}
                Some(place) => saved.push((register, place)),
                None => saved.push((register, Place::Undefined)),
            }
        }
        Some((cfa, ra))
    }

    /// Carry `effect` out. `word` reads the image.
    pub(super) fn apply(&mut self, effect: Effect, word: &dyn Fn(u64) -> Option<u32>) {
        match effect {
            Effect::Clobber(mask) => self.clobber(mask),
            Effect::Add { to, from, by } => {
                let value = match self.register(from) {
                    Value::Cfa(offset) => offset.checked_add(by).map(Value::Cfa),
                    Value::Constant(value) => Some(Value::Constant(value.wrapping_add_signed(by))),
                    value if by == 0 => Some(value),
                    _ => None,
                };
                self.set(to, value.unwrap_or(Value::Unknown));
            }
            Effect::AddRegister {
                to,
                from,
                by,
                subtract,
            } => {
                let value = match (self.register(from), self.register(by)) {
                    (Value::Cfa(offset), Value::Constant(by))
                    | (Value::Constant(by), Value::Cfa(offset))
                        if !subtract || matches!(self.register(from), Value::Cfa(_)) =>
                    {
                        let by = by as i32;
                        let sum = if subtract {
                            offset.checked_sub(by)
                        } else {
                            offset.checked_add(by)
                        };
                        sum.map(Value::Cfa)
                    }
                    _ => None,
                };
                self.set(to, value.unwrap_or(Value::Unknown));
            }
            Effect::Constant { to, value } => self.set(to, Value::Constant(value)),
            Effect::High { to, value } => {
                let value = match self.register(to) {
                    Value::Constant(low) => Value::Constant(low & 0xffff | u32::from(value) << 16),
                    _ => Value::Unknown,
                };
                self.set(to, value);
            }
            Effect::Literal { to, svma } => {
                self.set(to, word(svma).map_or(Value::Unknown, Value::Constant));
            }
            Effect::Store { base, offset, mask } => {
                if let Value::Cfa(start) = self.register(base) {
                    let mut at = start.saturating_add(offset);
                    for register in bits(mask) {
                        self.store(at, self.register(register));
                        at = at.saturating_add(4);
                    }
                }
            }
            Effect::Load { base, offset, mask } => {
                let start = match self.register(base) {
                    Value::Cfa(start) => Some(start.saturating_add(offset)),
                    _ => None,
                };
                let mut loaded = [Value::Unknown; 32];
                for (index, register) in bits(mask).enumerate() {
                    loaded[usize::from(register)] = start.map_or(Value::Unknown, |start| {
                        self.slot(start.saturating_add(4 * index as i32))
                    });
                }
                for register in bits(mask) {
                    self.set(register, loaded[usize::from(register)]);
                }
            }
            Effect::SystemCall => {
                // clone 120, clone3 435 (arch/arm/tools/syscall.tbl)
                self.forked = matches!(self.register(7), Value::Constant(120 | 435));
                self.set(0, Value::Unknown);
            }
        }
    }

    /// A call returned.
    pub(super) fn called(&mut self) {
        self.clobber(0xffff & !PRESERVED & !(1 << SP));
    }

    /// The state where r0 was found to be zero: after a clone system call, the child's.
    pub(super) fn zero(&mut self) {
        if self.forked {
            self.root = true;
            self.forked = false;
        }
    }

    /// The state where r0 was found not to be zero.
    pub(super) fn nonzero(&mut self) {
        self.forked = false;
    }

    /// Whether both states know the frame by the same register, so that stack pointers may differ: `alloca`.
    pub(super) fn shares_frame(&self, other: &State) -> bool {
        (4..=11).any(|register| {
            let value = self.register(register);
            matches!(value, Value::Cfa(_)) && value == other.register(register)
        })
    }

    /// What is known on both paths. Returns whether `self` changed.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            if mine != theirs && *mine != Value::Unknown {
                *mine = Value::Unknown;
                changed = true;
            }
        }
        let before = self.slots.len();
        self.slots
            .retain(|slot| other.slots.binary_search(slot).is_ok());
        changed |= self.slots.len() != before;
        // Both a thread's start and not: the rules of the part that has a caller serve.
        if self.root && !other.root {
            self.root = false;
            changed = true;
        }
        self.forked &= other.forked;
        if self.after != other.after && self.after.is_some() {
            self.after = None;
            changed = true;
        }
        changed
    }

    fn clobber(&mut self, mask: u32) {
        for register in bits(mask) {
            self.set(register, Value::Unknown);
        }
    }

    fn set(&mut self, register: u8, value: Value) {
        let Some(place) = self.registers.get_mut(usize::from(register)) else {
            return;
        };
        if register == 15 {
            return;
        }
        *place = value;
        if usize::from(register) == SP
            && let Value::Cfa(offset) = value
        {
            // Below sp nothing lasts.
            self.slots.retain(|slot| slot.0 >= offset);
        }
    }

    fn slot(&self, at: i32) -> Value {
        match self.slots.binary_search_by_key(&at, |slot| slot.0) {
            Ok(index) => self.slots[index].1,
            Err(_) => Value::Unknown,
        }
    }

    fn store(&mut self, at: i32, value: Value) {
        match self.slots.binary_search_by_key(&at, |slot| slot.0) {
            Ok(index) if value == Value::Unknown => {
                self.slots.remove(index);
            }
            Ok(index) => self.slots[index].1 = value,
            Err(index) => {
                let worth = matches!(value, Value::Entry(_) | Value::Cfa(_));
                if worth && self.slots.len() < MOST_SLOTS {
                    self.slots.insert(index, (at, value));
                }
            }
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |value: &Value| match *value {
            Value::Unknown => (0u8, 0i64),
            Value::Entry(register) => (1, i64::from(register)),
            Value::Cfa(offset) => (2, i64::from(offset)),
            Value::Constant(value) => (3, i64::from(value)),
        };
        key(self).cmp(&key(other))
    }
}

fn bits(mask: u32) -> impl Iterator<Item = u8> {
    (0..32u8).filter(move |bit| mask >> bit & 1 == 1)
}
