//! Applies an instruction's effects to a state.

use super::value::Value;
use super::{State, bits};
use crate::code::effect::{Effect, Entry};
use crate::code::machine::Machine;
use crate::code::text::Text;

/// A jump table as the code computes it: `target + (*(table + index * size) << shift)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::code) struct JumpTable {
    pub(in crate::code) table: u64,
    pub(in crate::code) entry: Entry,
    /// The address that entries are added to.
    pub(in crate::code) target: u64,
    pub(in crate::code) shift: u8,
}

/// Everything besides the state that an effect may depend on.
pub(in crate::code) struct Context<'t> {
    pub(in crate::code) text: &'t Text<'t>,
    pub(in crate::code) machine: &'static Machine,
    /// The jump tables found so far, by number.
    pub(in crate::code) tables: Vec<JumpTable>,
    /// The start addresses of tables, unordered. A table ends where another starts.
    pub(in crate::code) bases: Vec<u64>,
}

impl Context<'_> {
    fn table(&mut self, table: JumpTable) -> Option<u16> {
        if !self.bases.contains(&table.table) {
            self.bases.push(table.table);
        }
        if let Some(known) = self.tables.iter().position(|other| *other == table) {
            return Some(known as u16);
        }
        let number = u16::try_from(self.tables.len()).ok()?;
        self.tables.push(table);
        Some(number)
    }

    /// The value of an entry of the table at `table`, before anything is added to it.
    fn entry(&mut self, table: u32, entry: Entry) -> Value {
        let number = self.table(JumpTable {
            table: u64::from(table),
            entry,
            target: 0,
            shift: 0,
        });
        number.map_or(Value::Unknown, Value::Loaded)
    }

    /// The value of an entry of table `number`, added to an address.
    fn computed(&mut self, number: u16, target: u32, shift: u8, signed: bool) -> Value {
        let Some(&table) = self.tables.get(usize::from(number)) else {
            return Value::Unknown;
        };
        let entry = Entry {
            signed: signed || table.entry.signed,
            ..table.entry
        };
        let table = JumpTable {
            entry,
            target: u64::from(target),
            shift,
            ..table
        };
        self.table(table).map_or(Value::Unknown, Value::Target)
    }
}

impl State {
    /// Applies `effect`.
    pub(in crate::code) fn apply(&mut self, effect: Effect, context: &mut Context<'_>) {
        match effect {
            Effect::Clobber(mask) => self.clobber(mask),
            Effect::Add { to, from, by } => {
                let value = match self.register(from) {
                    Value::Constant(value) => Value::Constant(value.wrapping_add_signed(by)),
                    value if by == 0 => value,
                    value => value.moved(by).unwrap_or(Value::Unknown),
                };
                self.set(to, value);
            }
            Effect::AddRegister {
                to,
                from,
                by,
                subtract,
                shift,
                signed,
            } => {
                let (left, right) = (self.register(from), self.register(by));
                let value = match (left, right) {
                    (Value::Constant(target), Value::Loaded(table)) if !subtract => {
                        context.computed(table, target, shift, signed)
                    }
                    (Value::Loaded(table), Value::Constant(target)) if !subtract && shift == 0 => {
                        context.computed(table, target, 0, signed)
                    }
                    (Value::Constant(table), Value::Unknown)
                        if !subtract
                            && 1 << shift == self.machine.slot
                            && context.text.may_be_table(table.into()) =>
                    {
                        Value::Element(table)
                    }
                    _ => sum(left, right, subtract, shift),
                };
                if value == Value::Unknown && to == self.machine.sp {
                    self.set_anchor();
                } else {
                    self.set(to, value);
                }
            }
            Effect::Constant { to, value } => self.set(to, Value::Constant(value)),
            Effect::High { to, value } => {
                let value = match self.register(to) {
                    Value::Constant(low) => Value::Constant(low & 0xffff | u32::from(value) << 16),
                    _ => Value::Unknown,
                };
                self.set(to, value);
            }
            Effect::Half { to, from } => {
                // Only the lower half of a constant is tracked.
                let value = match self.register(from) {
                    value @ Value::Constant(_) => value,
                    _ => Value::Unknown,
                };
                self.set(to, value);
            }
            Effect::Low { to, value } => {
                let value = match self.register(to) {
                    Value::Constant(rest) => Value::Constant(rest & !0xff | u32::from(value)),
                    _ => Value::Unknown,
                };
                self.set(to, value);
            }
            Effect::Literal { to, svma } => {
                let word = context.text.word(u64::from(svma));
                self.set(to, word.map_or(Value::Unknown, Value::Constant));
            }
            Effect::Data { .. } => {}
            Effect::Align { to, from } => {
                if to == self.machine.sp && matches!(self.register(from), Value::Cfa(_)) {
                    self.set_anchor();
                } else {
                    self.set(to, Value::Unknown);
                }
            }
            Effect::Indexed { to, base, entry } => {
                let value = match self.register(base) {
                    Value::Constant(table) => context.entry(table, entry),
                    _ => Value::Unknown,
                };
                self.set(to, value);
            }
            Effect::Store { base, offset, mask } => {
                let Some(mut at) = self.register(base).moved(offset) else {
                    return;
                };
                for register in bits(mask) {
                    let value = match self.register(register) {
                        // On the stack, only addresses of tables are worth tracking among
                        // constants.
                        Value::Constant(value) if !context.text.may_be_table(value.into()) => {
                            Value::Unknown
                        }
                        value => value,
                    };
                    self.store(at, value);
                    at = at.moved(self.machine.slot).unwrap_or(Value::Unknown);
                }
            }
            Effect::Exchange { one, other } => {
                let (first, second) = (self.register(one), self.register(other));
                for (to, value) in [(one, second), (other, first)] {
                    if to != self.machine.sp {
                        self.set(to, value);
                    }
                }
                for (to, value) in [(one, second), (other, first)] {
                    if to == self.machine.sp && value == Value::Unknown {
                        self.set_anchor();
                    } else if to == self.machine.sp {
                        self.set(to, value);
                    }
                }
            }
            Effect::Copy {
                from,
                offset,
                to,
                at,
            } => {
                let value = self.register(from).moved(offset);
                let value = value.map_or(Value::Unknown, |place| self.slot(place));
                if let Some(at) = self.register(to).moved(at) {
                    self.store(at, value);
                }
            }
            Effect::Load { base, offset, mask }
                if mask.is_power_of_two()
                    && let Value::Element(table) = self.register(base) =>
            {
                let entry = Entry {
                    size: self.machine.slot as u8,
                    signed: true,
                };
                let value = context.entry(table.wrapping_add_signed(offset), entry);
                for register in bits(mask) {
                    self.set(register, value);
                }
            }
            Effect::Load { base, offset, mask } => {
                let mut at = self.register(base).moved(offset);
                // sp comes last, because slots below a new stack pointer are forgotten.
                let mut sp = None;
                for register in bits(mask) {
                    let value = at.map_or(Value::Unknown, |at| self.slot(at));
                    if register == self.machine.sp {
                        sp = Some(value);
                    } else {
                        self.set(register, value);
                    }
                    at = at.and_then(|at| at.moved(self.machine.slot));
                }
                if let Some(value) = sp {
                    self.set(self.machine.sp, value);
                }
            }
            Effect::Sign(signed) => {
                self.dirty |= self.signed != signed;
                self.signed = signed;
            }
            Effect::SystemCall => {
                let number = self.register(self.machine.call_number);
                self.forked =
                    matches!(number, Value::Constant(n) if self.machine.forks.contains(&n));
                self.set(self.machine.result, Value::Unknown);
            }
        }
    }
}

/// `from ± by << shift`
fn sum(from: Value, by: Value, subtract: bool, shift: u8) -> Value {
    let step = |offset: i32, by: u32| {
        let by = (by as i32).checked_shl(u32::from(shift))?;
        if subtract {
            offset.checked_sub(by)
        } else {
            offset.checked_add(by)
        }
    };
    let value = match (from, by) {
        (Value::Cfa(offset), Value::Constant(by)) => step(offset, by).map(Value::Cfa),
        (Value::Base(offset), Value::Constant(by)) => step(offset, by).map(Value::Base),
        (Value::Constant(by), Value::Cfa(offset)) if !subtract && shift == 0 => {
            step(offset, by).map(Value::Cfa)
        }
        (Value::Constant(from), Value::Constant(by)) => {
            step(from as i32, by).map(|sum| Value::Constant(sum as u32))
        }
        _ => None,
    };
    value.unwrap_or(Value::Unknown)
}
