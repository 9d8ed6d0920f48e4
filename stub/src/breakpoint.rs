//! Traps in the program's text, and where the instructions under them are executed.
//!
//! A [`patch`] is bytes of ours where the program had others. The [`table`] holds the traps of
//! clients, tracepoints and steps, and the [`journal`] lists them in memory that outlives the stub.
//! [`displaced`] instructions are executed in [`code_caves`], so that their traps can stay. Apart
//! because nothing here needs threads or clients.

mod code_caves;
pub(crate) mod condition;
pub(crate) mod displaced;
pub(crate) mod journal;
pub(crate) mod patch;
pub(crate) mod table;
