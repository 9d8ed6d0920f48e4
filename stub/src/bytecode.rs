//! Agent expressions: the bytecode by which gdb defines when and what a tracepoint collects (GDB
//! manual, appendix "The GDB Agent Expression Mechanism").
//!
//! [`Op`] is one decoded instruction. [`evaluate()`] executes instructions on a stack machine. The
//! planner of fast tracepoints follows them without executing them. Code from a client is not
//! trusted, so every operand is checked.

mod evaluate;
mod op;
mod printf;

use std::fmt;

pub(crate) use evaluate::{World, evaluate};
pub(crate) use op::{Binary, Op};

/// The reason why an expression has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The instruction is not supported or is meaningless here: floating point, or `printf` in
    /// actions that collect.
    Unsupported(u8),
    /// The code ends too early, or jumps outside.
    OutOfCode,
    /// The stack overflows or underflows.
    Stack,
    /// A register or memory cannot be read.
    Unreadable,
    /// Division by zero.
    DivisionByZero,
    /// The limit of steps is reached.
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
