//! What is known at one instruction: registers and stack slots relative to the function's entry.
//!
//! Addresses on the stack are known relative to the CFA or, once the stack pointer was aligned or moved by
//! an unknown amount, relative to that unknown place, of which there is one at a time (`Base`). A state
//! is copied at every branch, so it is one flat piece of memory.

mod rule;

pub(super) use rule::leb128;

use super::condition::Either;
use super::effect::{Effect, Entry};
use super::machine::Machine;
use super::text::Text;

/// Registers tracked.
pub(crate) const REGISTERS: usize = 32;
/// Stack slots tracked; more are forgotten, which makes their registers unknown, never wrong.
const MOST_SLOTS: usize = 28;
/// No call yet.
pub(super) const NO_CALL: u32 = u32::MAX;

/// A register's or slot's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Anything.
    Unknown,
    /// What this register held when the function was entered.
    Entry(u8),
    /// `cfa + offset`
    Cfa(i32),
    /// `base + offset`: base is the stack pointer at the last place that moved it by an unknown amount.
    Base(i32),
    /// A constant.
    Constant(u32),
    /// Somewhere in the table that starts at this address.
    Element(u32),
    /// An entry of the jump table of this number.
    Loaded(u16),
    /// The target of the jump table of this number.
    Target(u16),
}

/// A place on the stack and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    /// `Value::Cfa` or `Value::Base`.
    at: Value,
    value: Value,
}

/// A jump table as the code computes it: `target + (*(table + index * size) << shift)`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JumpTable {
    pub(super) table: u64,
    pub(super) entry: Entry,
    /// What entries are added to.
    pub(super) target: u64,
    pub(super) shift: u8,
}

/// What instructions are carried out in.
pub(super) struct Context<'t> {
    pub(super) text: &'t Text<'t>,
    pub(super) machine: &'static Machine,
    /// By number.
    pub(super) tables: Vec<JumpTable>,
    /// Where tables start, which is where others end; in no order.
    pub(super) bases: Vec<u64>,
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
}

/// Everything known before one instruction executes.
#[derive(Clone, Debug)]
pub struct State {
    registers: [Value; REGISTERS],
    slots: [Slot; MOST_SLOTS],
    count: u8,
    /// There is no caller: the start of a thread.
    root: bool,
    /// A clone system call was just made: the child is where its result is 0.
    forked: bool,
    /// The return address in its register carries a pointer authentication code.
    signed: bool,
    /// A loop has moved what addresses are relative to by an unknown amount.
    pub(super) moved: bool,
    /// Something a rule is made of changed since this was last cleared.
    pub(super) dirty: bool,
    /// The stack pointer is at one of two places: the flags tell. Only at instructions to be shown, never on a path.
    pub(super) either: Option<Either>,
    /// The last call on every path to here since one joined another, [`NO_CALL`] if none; see `flow`.
    pub(super) after: u32,
    machine: &'static Machine,
}

impl State {
    /// At a function's first instruction.
    pub(crate) fn entry(machine: &'static Machine) -> State {
        let mut registers = [Value::Unknown; REGISTERS];
        for number in 0..machine.registers {
            registers[usize::from(number)] = Value::Entry(number);
        }
        registers[usize::from(machine.sp)] = Value::Cfa(-machine.entry_depth);
        let empty = Slot {
            at: Value::Unknown,
            value: Value::Unknown,
        };
        let mut state = State {
            registers,
            slots: [empty; MOST_SLOTS],
            count: 0,
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
            state.registers[15] = Value::Unknown;
        }
        if !machine.link {
            state.store(Value::Cfa(-machine.slot), Value::Entry(machine.ra));
        }
        state
    }

    /// At the first instruction of a program, which has no caller.
    pub(crate) fn root(machine: &'static Machine) -> State {
        let mut state = State::entry(machine);
        state.root = true;
        state
    }

    /// At the first instruction of a function that is jumped to with the return address in the stack slot at `cfa + slot`,
    /// the stack pointer being `depth` below the CFA.
    pub(super) fn pushed(machine: &'static Machine, depth: i32, slot: i32) -> State {
        let mut state = State::entry(machine);
        state.registers[usize::from(machine.sp)] = Value::Cfa(depth.wrapping_neg());
        state.registers[usize::from(machine.ra)] = Value::Unknown;
        state.store(Value::Cfa(slot), Value::Entry(machine.ra));
        state
    }

    /// A register's content.
    pub fn register(&self, number: u8) -> Value {
        self.registers
            .get(usize::from(number))
            .copied()
            .unwrap_or(Value::Unknown)
    }

    /// What the stack holds at `at`, a [`Value::Cfa`] or [`Value::Base`].
    pub fn slot(&self, at: Value) -> Value {
        self.slots()
            .iter()
            .find(|slot| slot.at == at)
            .map_or(Value::Unknown, |slot| slot.value)
    }

    fn slots(&self) -> &[Slot] {
        &self.slots[..usize::from(self.count)]
    }

    /// How far the stack pointer is below the CFA.
    pub fn depth(&self) -> Option<i32> {
        match self.register(self.machine.sp) {
            Value::Cfa(offset) => Some(offset.wrapping_neg()),
            _ => None,
        }
    }

    /// The stack pointer is where it was at the function's entry, or not known.
    pub(super) fn has_frame(&self) -> bool {
        self.depth() != Some(self.machine.entry_depth)
    }

    /// There is no caller.
    pub fn is_root(&self) -> bool {
        self.root
    }

    /// The return address is signed.
    pub fn is_signed(&self) -> bool {
        self.signed
    }

    /// Calls leave the return address in a register.
    pub fn has_link_register(&self) -> bool {
        self.machine.link
    }

    /// Carry `effect` out.
    pub(super) fn apply(&mut self, effect: Effect, context: &mut Context<'_>) {
        match effect {
            Effect::Clobber(mask) => self.clobber(mask),
            Effect::Add { to, from, by } => {
                let value = match self.register(from) {
                    Value::Cfa(offset) => offset.checked_add(by).map(Value::Cfa),
                    Value::Base(offset) => offset.checked_add(by).map(Value::Base),
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
                shift,
                signed,
            } => {
                let (left, right) = (self.register(from), self.register(by));
                let value = match (left, right) {
                    (Value::Constant(target), Value::Loaded(table)) if !subtract => {
                        computed(context, table, target, shift, signed)
                    }
                    (Value::Loaded(table), Value::Constant(target)) if !subtract && shift == 0 => {
                        computed(context, table, target, 0, signed)
                    }
                    (Value::Constant(table), Value::Unknown)
                        if !subtract
                            && 1 << shift == self.machine.slot
                            && context.text.is_mapped(table.into()) =>
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
            Effect::Low { to, value } => {
                let value = match self.register(to) {
                    Value::Constant(rest) => Value::Constant(rest & !0xff | u32::from(value)),
                    _ => Value::Unknown,
                };
                self.set(to, value);
            }
            Effect::Literal { to, svma } => {
                let word = context.text.word(svma);
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
                    Value::Constant(table) => context
                        .table(JumpTable {
                            table: u64::from(table),
                            entry,
                            target: 0,
                            shift: 0,
                        })
                        .map(Value::Loaded),
                    _ => None,
                };
                self.set(to, value.unwrap_or(Value::Unknown));
            }
            Effect::Store { base, offset, mask } => {
                let Some(mut at) = moved(self.register(base), offset) else {
                    return;
                };
                for register in bits(mask) {
                    let value = match self.register(register) {
                        // Addresses of tables are kept on the stack, other numbers are of no use.
                        Value::Constant(value) if !context.text.is_mapped(value.into()) => {
                            Value::Unknown
                        }
                        value => value,
                    };
                    self.store(at, value);
                    at = moved(at, self.machine.slot).unwrap_or(Value::Unknown);
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
                let value = moved(self.register(from), offset);
                let value = value.map_or(Value::Unknown, |place| self.slot(place));
                if let Some(at) = moved(self.register(to), at) {
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
                let value = context.table(JumpTable {
                    table: u64::from(table.wrapping_add_signed(offset)),
                    entry,
                    target: 0,
                    shift: 0,
                });
                let value = value.map_or(Value::Unknown, Value::Loaded);
                for register in bits(mask) {
                    self.set(register, value);
                }
            }
            Effect::Load { base, offset, mask } => {
                let mut at = moved(self.register(base), offset);
                // Last, since slots below a new stack pointer are forgotten.
                let mut sp = None;
                for register in bits(mask) {
                    let value = at.map_or(Value::Unknown, |at| self.slot(at));
                    if register == self.machine.sp {
                        sp = Some(value);
                    } else {
                        self.set(register, value);
                    }
                    at = at.and_then(|at| moved(at, self.machine.slot));
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

    /// The stack pointer becomes the base that addresses are relative to, unless another still is.
    fn set_anchor(&mut self) {
        let sp = usize::from(self.machine.sp);
        let others = (0..REGISTERS).any(|n| n != sp && matches!(self.registers[n], Value::Base(_)));
        self.dirty = true;
        if others {
            self.registers[sp] = Value::Unknown;
            return;
        }
        self.keep_slots(|slot| !matches!(slot.at, Value::Base(_)));
        for index in 0..usize::from(self.count) {
            if matches!(self.slots[index].value, Value::Base(_)) {
                self.slots[index].value = Value::Unknown;
            }
        }
        self.registers[sp] = Value::Base(0);
        self.moved = false;
    }

    /// The stack pointer is another stack's, `depth` below the frame that control will return to by `ra`. Nothing is known of
    /// that frame's registers.
    pub(super) fn switched(&mut self, ra: u8, depth: i32) {
        let machine = self.machine;
        self.keep_slots(|_| false);
        for number in 0..machine.registers {
            if matches!(self.register(number), Value::Entry(of) if machine.follows(of))
                || matches!(self.register(number), Value::Cfa(_) | Value::Base(_))
            {
                self.set(number, Value::Unknown);
            }
        }
        self.set(machine.sp, Value::Cfa(depth.wrapping_neg()));
        self.set(ra, Value::Entry(machine.ra));
    }

    /// Where an exception is caught that passed a call here, the stack being at most `depth` deep.
    pub(super) fn landed(&self, depth: i32) -> State {
        let mut state = self.clone();
        state.after = NO_CALL;
        if state.depth().is_some_and(|own| own > depth) {
            state.set(state.machine.sp, Value::Cfa(depth.wrapping_neg()));
        }
        state
    }

    /// A call returned, of a function that leaves the registers of `spared` as they are, whatever the calling convention.
    pub(super) fn called(&mut self, spared: u32) {
        let machine = self.machine;
        self.clobber(!machine.preserved & !(1 << machine.sp) & !spared);
        if let Value::Base(sp) = self.register(machine.sp) {
            self.keep_slots(|slot| !matches!(slot.at, Value::Base(at) if at < sp));
        }
    }

    /// The state where a system call's result was found to be zero: after clone, the child's.
    pub(super) fn zero(&mut self) {
        if self.forked {
            self.root = true;
            self.forked = false;
            self.dirty = true;
        }
    }

    /// The state where it was found not to be zero.
    pub(super) fn nonzero(&mut self) {
        self.forked = false;
    }

    /// A call would end what is known of the frame: it is known by registers only that calls do not preserve.
    pub(super) fn hangs_on_call(&self) -> bool {
        let machine = self.machine;
        let is_cfa = |&register: &u8| matches!(self.register(register), Value::Cfa(_));
        !is_cfa(&machine.sp)
            && self.dereference().is_none()
            && machine.frames.iter().any(is_cfa)
            && !bits(machine.preserved).any(|register| is_cfa(&register))
    }

    /// Whether both states know the frame by the same register, so that stack pointers may differ: `alloca`.
    pub(super) fn shares_frame(&self, other: &State) -> bool {
        bits(self.machine.preserved).any(|register| {
            let value = self.register(register);
            matches!(value, Value::Cfa(_)) && value == other.register(register)
        })
    }

    /// The same, relative to `base + by`.
    fn rebased(&self, by: i32) -> State {
        let mut state = self.clone();
        let moved = |value: Value| match value {
            Value::Base(offset) => offset.checked_sub(by).map_or(Value::Unknown, Value::Base),
            value => value,
        };
        for value in &mut state.registers {
            *value = moved(*value);
        }
        let slots = &mut state.slots[..usize::from(state.count)];
        for slot in slots {
            slot.at = moved(slot.at);
            slot.value = moved(slot.value);
        }
        state.dirty = true;
        state
    }

    /// What is known at the head of a loop, of which `other` is the end. A loop in which another has moved the stack pointer by
    /// an unknown amount leaves it where it found it: it could not be told where that is, otherwise.
    pub(super) fn meet_again(&mut self, other: &State) -> bool {
        let sp = usize::from(self.machine.sp);
        let both = matches!(
            (self.registers[sp], other.registers[sp]),
            (Value::Base(_), Value::Base(_))
        );
        if self.moved || !other.moved || !both {
            return self.meet(other);
        }
        let mut balanced = other.clone();
        balanced.moved = false;
        for value in &mut balanced.registers {
            if matches!(value, Value::Base(_)) {
                *value = Value::Unknown;
            }
        }
        balanced.registers[sp] = self.registers[sp];
        balanced.keep_slots(|slot| {
            !matches!(slot.at, Value::Base(_)) && !matches!(slot.value, Value::Base(_))
        });
        for slot in self.slots() {
            if matches!(slot.at, Value::Base(_)) {
                balanced.store(slot.at, slot.value);
            }
        }
        self.meet(&balanced)
    }

    /// What is known on both paths. Returns whether `self` changed.
    pub(super) fn meet(&mut self, other: &State) -> bool {
        let mut changed = false;
        let rebased;
        let mut other = other;
        if let (Value::Base(own), Value::Base(theirs)) = (
            self.register(self.machine.sp),
            other.register(self.machine.sp),
        ) && own != theirs
        {
            // A loop moves the stack pointer: what both know is relative to where it is now.
            rebased = other.rebased(theirs);
            other = &rebased;
            if own != 0 {
                *self = self.rebased(own);
                changed = true;
            }
            changed |= !self.moved;
            self.moved = true;
        }
        changed |= other.moved && !self.moved;
        self.moved |= other.moved;
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            if mine != theirs && *mine != Value::Unknown {
                *mine = Value::Unknown;
                changed = true;
            }
        }
        let before = self.count;
        if self.slots() != other.slots() {
            self.keep_slots(|slot| other.slots().contains(slot));
        }
        changed |= self.count != before;
        // Both a thread's start and not: the rules of the part that has a caller serve.
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

    fn keep_slots(&mut self, keep: impl Fn(&Slot) -> bool) {
        let mut kept = 0;
        for index in 0..usize::from(self.count) {
            let slot = self.slots[index];
            if keep(&slot) {
                self.slots[kept] = slot;
                kept += 1;
            }
        }
        self.dirty |= kept != usize::from(self.count);
        self.count = kept as u8;
    }

    fn clobber(&mut self, mask: u32) {
        for register in bits(mask) {
            self.set(register, Value::Unknown);
        }
    }

    fn set(&mut self, register: u8, value: Value) {
        if register >= self.machine.registers {
            return;
        }
        let place = &mut self.registers[usize::from(register)];
        if *place == value {
            return;
        }
        let relevant = |value: Value| match value {
            Value::Entry(of) => self.machine.follows(of),
            Value::Cfa(_) | Value::Base(_) => true,
            _ => false,
        };
        self.dirty |= relevant(*place) || relevant(value) || register == self.machine.ra;
        *place = value;
        if register == self.machine.sp {
            // Below sp nothing lasts.
            match value {
                Value::Cfa(offset) => self.keep_slots(|slot| match slot.at {
                    Value::Cfa(at) => at >= offset,
                    _ => false,
                }),
                Value::Base(offset) => {
                    // System V ABI, 3.2.2: on x86-64 128 bytes below sp last, until a call.
                    let zone = if self.machine.link { 0 } else { 128 };
                    let lowest = offset.saturating_sub(zone);
                    self.keep_slots(|slot| match (slot.at, slot.value) {
                        (Value::Base(at), Value::Cfa(_)) => at >= lowest,
                        (Value::Base(at), _) => at >= offset,
                        _ => true,
                    });
                }
                _ => {}
            }
        }
    }

    fn store(&mut self, at: Value, value: Value) {
        let worth = match value {
            Value::Entry(of) => self.machine.follows(of),
            Value::Unknown => false,
            _ => true,
        };
        let known = self.slots().iter().position(|slot| slot.at == at);
        match known {
            Some(index) if worth => {
                self.dirty |= self.slots[index].value != value;
                self.slots[index].value = value;
            }
            Some(index) => {
                self.dirty = true;
                let last = usize::from(self.count);
                self.slots.copy_within(index + 1..last, index);
                self.count -= 1;
            }
            None if worth && usize::from(self.count) < MOST_SLOTS => {
                // In order, so that equal states are equal piece by piece.
                let order = |at: Value| match at {
                    Value::Cfa(offset) => (0, offset),
                    Value::Base(offset) => (1, offset),
                    _ => (2, 0),
                };
                let last = usize::from(self.count);
                let index = self
                    .slots()
                    .iter()
                    .position(|slot| order(slot.at) > order(at))
                    .unwrap_or(last);
                self.slots.copy_within(index..last, index + 1);
                self.slots[index] = Slot { at, value };
                self.count += 1;
                self.dirty = true;
            }
            None => {}
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

/// An entry of a jump table was added to an address.
fn computed(context: &mut Context<'_>, number: u16, target: u32, shift: u8, signed: bool) -> Value {
    let Some(&table) = context.tables.get(usize::from(number)) else {
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
    context.table(table).map_or(Value::Unknown, Value::Target)
}

/// `at + by`, where `at` is on the stack.
fn moved(at: Value, by: i32) -> Option<Value> {
    match at {
        Value::Cfa(offset) => offset.checked_add(by).map(Value::Cfa),
        Value::Base(offset) => offset.checked_add(by).map(Value::Base),
        _ => None,
    }
}

/// Numbers of the bits set, lowest first.
pub(super) fn bits(mask: u32) -> impl Iterator<Item = u8> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let bit = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (bit < 32).then_some(bit as u8)
    })
}
