//! What a register or a stack slot holds, and how it is kept: packed, so that two of them are compared at once.

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

impl Value {
    /// `self + by`, where `self` is an address on the stack.
    pub(super) fn moved(self, by: i32) -> Option<Value> {
        match self {
            Value::Cfa(offset) => offset.checked_add(by).map(Value::Cfa),
            Value::Base(offset) => offset.checked_add(by).map(Value::Base),
            _ => None,
        }
    }
}

/// A value: its kind in the upper half, what it says of it in the lower. Addresses on the stack are in order: those relative
/// to the CFA, then those relative to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Word(u64);

/// Turns the order of signed numbers into that of unsigned ones.
const SIGN: u32 = 1 << 31;

impl Word {
    pub(super) const UNKNOWN: Word = Word(0);

    const fn new(kind: u64, payload: u32) -> Word {
        Word(kind << 32 | payload as u64)
    }

    pub(super) const fn entry(register: u8) -> Word {
        Word::new(1, register as u32)
    }

    pub(super) const fn cfa(offset: i32) -> Word {
        Word::new(2, offset as u32 ^ SIGN)
    }

    pub(super) const fn base(offset: i32) -> Word {
        Word::new(3, offset as u32 ^ SIGN)
    }

    pub(super) const fn constant(value: u32) -> Word {
        Word::new(4, value)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// An address on the stack, or what a register of `followed` held at the function's entry; else unknown.
    #[inline]
    pub(super) fn places(self, followed: u32) -> Word {
        let kept = match self.0 >> 32 {
            1 => followed >> (self.0 & 31) & 1 == 1,
            kind => matches!(kind, 2 | 3),
        };
        if kept { self } else { Word::UNKNOWN }
    }

    #[inline]
    pub(super) fn pack(value: Value) -> Word {
        match value {
            Value::Unknown => Word::UNKNOWN,
            Value::Entry(register) => Word::entry(register),
            Value::Cfa(offset) => Word::cfa(offset),
            Value::Base(offset) => Word::base(offset),
            Value::Constant(value) => Word::constant(value),
            Value::Element(table) => Word::new(5, table),
            Value::Loaded(number) => Word::new(6, number.into()),
            Value::Target(number) => Word::new(7, number.into()),
        }
    }

    #[inline]
    pub(super) fn unpack(self) -> Value {
        let payload = self.0 as u32;
        match self.0 >> 32 {
            1 => Value::Entry(payload as u8),
            2 => Value::Cfa((payload ^ SIGN) as i32),
            3 => Value::Base((payload ^ SIGN) as i32),
            4 => Value::Constant(payload),
            5 => Value::Element(payload),
            6 => Value::Loaded(payload as u16),
            7 => Value::Target(payload as u16),
            _ => Value::Unknown,
        }
    }

    /// The register whose value at the function's entry it is.
    #[inline]
    pub(super) fn entry_of(self) -> Option<u8> {
        (self.0 >> 32 == 1).then_some(self.0 as u8)
    }

    /// Relative to the CFA.
    #[inline]
    pub(super) fn is_cfa(self) -> bool {
        self.0 >> 32 == 2
    }

    /// Relative to the base.
    #[inline]
    pub(super) fn is_base(self) -> bool {
        self.0 >> 32 == 3
    }

    /// An address on the stack.
    #[inline]
    pub(super) fn is_address(self) -> bool {
        matches!(self.0 >> 32, 2 | 3)
    }

    /// The same on both paths, else unknown.
    #[inline]
    pub(super) fn meet(self, other: Word) -> Word {
        if self == other { self } else { Word::UNKNOWN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values_are_the_same_and_in_order() {
        let addresses = [i32::MIN, -4096, -8, 0, 8, i32::MAX];
        let cfa = addresses.map(Value::Cfa);
        let base = addresses.map(Value::Base);
        let words: Vec<Word> = cfa.iter().chain(&base).copied().map(Word::pack).collect();
        assert!(words.is_sorted());
        let others = [
            Value::Unknown,
            Value::Entry(31),
            Value::Constant(u32::MAX),
            Value::Element(5),
            Value::Loaded(u16::MAX),
            Value::Target(0),
        ];
        for value in cfa.into_iter().chain(base).chain(others) {
            assert_eq!(Word::pack(value).unpack(), value);
        }
    }
}
