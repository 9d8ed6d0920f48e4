//! Unwind rules: how to compute the caller's registers.
//!
//! They are small `Copy` values whose doc comments are the equations. Every source of unwind
//! information is translated to them. So one function evaluates them all, and any two sources can
//! be compared.

use core::fmt;

/// The source of a row's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// `.eh_frame` or `.debug_frame`.
    Cfi,
    /// `.ARM.exidx` and `.ARM.extab`.
    Exidx,
    /// Analysis of the machine code.
    Code,
}

impl Source {
    /// `cfi`, `exidx` or `code`.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Cfi => "cfi",
            Source::Exidx => "exidx",
            Source::Code => "code",
        }
    }

    /// All sources, best first at call sites, where all are valid.
    pub const ALL: [Source; 3] = [Source::Cfi, Source::Exidx, Source::Code];

    pub(crate) fn from_number(number: u64) -> Source {
        match number & 3 {
            0 => Source::Cfi,
            1 => Source::Exidx,
            _ => Source::Code,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A DWARF expression kept in the table, evaluated when a frame needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expression(pub(crate) u32);

/// The canonical frame address: the caller's stack pointer at the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// `cfa = register + offset`
    Register {
        /// DWARF number.
        register: u8,
        /// In bytes.
        offset: i32,
    },
    /// `cfa = evaluate(expression)`
    Expression(Expression),
    /// Unknown at this address.
    Unknown,
}

/// Where the caller's value of one register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `caller.r = r`; for the return address on machines with a link register, `caller.pc = lr`
    Same,
    /// The caller's value is lost. For the return address: there is no caller.
    Undefined,
    /// `caller.r = *(cfa + offset)`
    AtCfa(i32),
    /// `caller.r = cfa + offset`
    CfaPlus(i32),
    /// `caller.r = *(register + offset)`
    AtRegister {
        /// DWARF number.
        register: u8,
        /// In bytes.
        offset: i32,
    },
    /// `caller.r = register`
    Register(u8),
    /// `caller.r = *evaluate(expression)`
    AtExpression(Expression),
    /// `caller.r = evaluate(expression)`
    Value(Expression),
}

impl Cfa {
    /// A unique number for each value, for interning and storing.
    pub(crate) fn pack(self) -> u64 {
        match self {
            Cfa::Unknown => 0,
            Cfa::Register { register, offset } => packed(1, register, offset),
            Cfa::Expression(Expression(id)) => packed(2, 0, id as i32),
        }
    }

    pub(crate) fn unpack(word: u64) -> Cfa {
        match word >> 40 {
            1 => Cfa::Register {
                register: (word >> 32) as u8,
                offset: word as i32,
            },
            2 => Cfa::Expression(Expression(word as u32)),
            _ => Cfa::Unknown,
        }
    }
}

impl Place {
    /// A unique number of 44 bits for each value, for interning and storing.
    pub(crate) fn pack(self) -> u64 {
        match self {
            Place::Same => 0,
            Place::Undefined => packed(1, 0, 0),
            Place::AtCfa(offset) => packed(2, 0, offset),
            Place::CfaPlus(offset) => packed(3, 0, offset),
            Place::AtRegister { register, offset } => packed(4, register, offset),
            Place::Register(register) => packed(5, register, 0),
            Place::AtExpression(Expression(id)) => packed(6, 0, id as i32),
            Place::Value(Expression(id)) => packed(7, 0, id as i32),
        }
    }

    pub(crate) fn unpack(word: u64) -> Place {
        let (register, offset) = ((word >> 32) as u8, word as i32);
        match word >> 40 & 0xf {
            0 => Place::Same,
            2 => Place::AtCfa(offset),
            3 => Place::CfaPlus(offset),
            4 => Place::AtRegister { register, offset },
            5 => Place::Register(register),
            6 => Place::AtExpression(Expression(word as u32)),
            7 => Place::Value(Expression(word as u32)),
            _ => Place::Undefined,
        }
    }
}

fn packed(kind: u64, register: u8, payload: i32) -> u64 {
    kind << 40 | u64::from(register) << 32 | u64::from(payload as u32)
}

/// A rule to get from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'t> {
    /// The caller's stack pointer.
    pub cfa: Cfa,
    /// The return address.
    pub ra: Place,
    /// The other registers, by DWARF number. Registers with the same value in the caller are left
    /// out.
    pub saved: &'t [(u8, Place)],
    /// The kernel built the frame to deliver a signal. Its caller was interrupted and made no call.
    pub signal_frame: bool,
    /// AArch64: the return address carries a pointer authentication code, which must be removed.
    pub signed: bool,
}

/// A rule and the addresses it is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'t> {
    /// First address (svma).
    pub start: u64,
    /// One past the last address (svma).
    pub end: u64,
    /// The source of the rule.
    pub source: Source,
    /// The rule.
    pub rule: Rule<'t>,
}
