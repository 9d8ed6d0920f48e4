//! Agent expressions: the bytecode in which gdb says what a tracepoint collects and when (GDB
//! manual, appendix "The GDB Agent Expression Mechanism").
//!
//! [`Op`] is one decoded instruction. [`evaluate()`] executes them on a stack machine, and the
//! planner of fast tracepoints follows them without executing them. Code from a client is not
//! trusted: every operand is checked.

mod evaluate;
mod op;
mod printf;

use std::fmt;

pub(crate) use evaluate::{World, evaluate};
pub(crate) use op::{Binary, Op};

/// Why an expression has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// An instruction that we do not have, or that makes no sense here: floating point, `printf` of
    /// what is to be collected.
    Unsupported(u8),
    /// The code ends or jumps where there is none.
    OutOfCode,
    /// More on the stack than fits, or less than is needed.
    Stack,
    /// A register or memory that cannot be read.
    Unreadable,
    /// Division by zero.
    DivisionByZero,
    /// It does not come to an end.
    Endless,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unsupported(code) => write!(f, "unsupported bytecode {code:#x}"),
            Fault::OutOfCode => f.write_str("bytecode ends too early"),
            Fault::Stack => f.write_str("stack overflow or underflow"),
            Fault::Unreadable => f.write_str("memory or register cannot be read"),
            Fault::DivisionByZero => f.write_str("division by zero"),
            Fault::Endless => f.write_str("expression does not end"),
        }
    }
}
