//! The values of registers and stack slots, and their packed form, which compares two of them at
//! once.

/// The value of a register or slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// An unknown value.
    Unknown,
    /// The entry value of this register.
    Entry(u8),
    /// `cfa + offset`
    Cfa(i32),
    /// `base + offset`. The base is the stack pointer at the last place that moved it by an unknown
    /// amount.
    Base(i32),
    /// A constant.
    Constant(u32),
    /// An unknown address inside the table that starts at this address.
    Element(u32),
    /// An entry of the jump table with this number.
    Loaded(u16),
    /// A target of the jump table with this number.
    Target(u16),
    /// The argument that the function got in this register.
    Argument(u8),
}

impl Value {
    /// `self + by`, if `self` is a stack address.
    pub(super) fn moved(self, by: i32) -> Option<Value> {
        match self {
            Value::Cfa(offset) => offset.checked_add(by).map(Value::Cfa),
            Value::Base(offset) => offset.checked_add(by).map(Value::Base),
            _ => None,
        }
    }
}

/// A packed value: its kind in the upper half, its content in the lower. Stack addresses sort by
/// address: those relative to the CFA first, then those relative to the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Word(u64);

/// Maps the order of signed numbers to that of unsigned ones.
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

    /// Keeps a stack address, or the entry value of a register in `followed`. Else returns unknown.
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
            Value::Argument(register) => Word::new(8, register.into()),
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
            8 => Value::Argument(payload as u8),
            _ => Value::Unknown,
        }
    }

    /// The register whose entry value this is.
    #[inline]
    pub(super) fn entry_of(self) -> Option<u8> {
        (self.0 >> 32 == 1).then_some(self.0 as u8)
    }

    /// Whether this is an address relative to the CFA.
    #[inline]
    pub(super) fn is_cfa(self) -> bool {
        self.0 >> 32 == 2
    }

    /// Whether this is an address relative to the base.
    #[inline]
    pub(super) fn is_base(self) -> bool {
        self.0 >> 32 == 3
    }

    /// Whether this is a stack address.
    #[inline]
    pub(super) fn is_address(self) -> bool {
        matches!(self.0 >> 32, 2 | 3)
    }

    /// The value if both are equal, else unknown.
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
            Value::Argument(31),
        ];
        for value in cfa.into_iter().chain(base).chain(others) {
            assert_eq!(Word::pack(value).unpack(), value);
        }
    }
}
