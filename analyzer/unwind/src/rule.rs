//! Rules: how to get the caller's registers. Small `Copy` values whose doc comments are the
//! equations; every source of unwind information is translated to them, so that one function
//! in the walker carries them out and every source can be compared with every other.

use core::fmt;

/// Where a row's rule came from.
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

    /// All of them, best first where all are valid: at call sites.
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
    /// Not known here.
    Unknown,
}

/// Where the caller's value of one register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// `caller.r = r`; for the return address on machines with a link register, `caller.pc = lr`
    Same,
    /// The caller's value is lost; for the return address: there is no caller.
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
    /// One number per value, for interning and storing.
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
    /// One number per value, for interning and storing: 44 bits.
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

/// How to get from a frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'t> {
    /// The caller's stack pointer.
    pub cfa: Cfa,
    /// The return address.
    pub ra: Place,
    /// The other registers, by DWARF number, where the caller's value is not simply the same.
    pub saved: &'t [(u8, Place)],
    /// The frame was built by the kernel to deliver a signal: its caller was interrupted, not calling.
    pub signal_frame: bool,
    /// AArch64: the return address carries a pointer authentication code to be stripped.
    pub signed: bool,
}

/// A rule and the addresses it is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'t> {
    /// First address (svma).
    pub start: u64,
    /// One past the last address (svma).
    pub end: u64,
    /// Where the rule came from.
    pub source: Source,
    /// The rule.
    pub rule: Rule<'t>,
}
