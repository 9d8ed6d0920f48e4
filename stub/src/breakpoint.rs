//! Traps in the program's text, and the execution of the instructions under them.
//!
//! A [`patch`] is a range where the stub has replaced the program's bytes. The [`table`] holds the
//! traps of clients, tracepoints and steps, and the [`journal`] lists them in memory that outlives
//! the stub. Threads execute [`displaced`] instructions in [`code_caves`], so that the traps can
//! stay. This module is separate because it needs neither threads nor clients.

mod code_caves;
pub(crate) mod condition;
pub(crate) mod displaced;
pub(crate) mod journal;
pub(crate) mod patch;
pub(crate) mod table;
