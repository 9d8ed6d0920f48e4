//! Rules: how to get the caller's registers. Small `Copy` values whose doc comments are the
//! equations; every source of unwind information is translated to them, so that one function
//! in the walker carries them out and every source can be compared with every other.

use std::fmt;

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

/// Everything one row says, save where it applies. Interned in the table: many rows share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    pub(crate) cfa: Cfa,
    pub(crate) ra: Place,
    /// Index of the interned list of saved registers.
    pub(crate) saved: u32,
    pub(crate) signal_frame: bool,
    /// AArch64: the return address carries a pointer authentication code.
    pub(crate) signed: bool,
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
