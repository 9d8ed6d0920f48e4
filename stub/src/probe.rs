//! What is planted in the program beside a client's breakpoints, and what it yields.
//!
//! A [`patch`] is bytes of ours where the program had others, and those that are traps stand in a [`journal`]. [`slots`] are patches in bytes that nothing uses
//! ([`caves`]): there an instruction runs whose place a trap has taken, so that the trap can stay. A [`trace`] is what
//! gdb calls an experiment: [`tracepoint`]s, [`variable`]s, the [`buffer`] that hits are noted in, with [`agent`]
//! expressions to say what and when, and a [`budget`] of what it may cost. Nothing here knows of threads or clients.

pub(crate) mod agent;
pub(crate) mod budget;
pub(crate) mod buffer;
mod caves;
pub(crate) mod journal;
pub(crate) mod jumps;
pub(crate) mod patch;
pub(crate) mod plan;
pub(crate) mod pool;
mod printf;
pub(crate) mod slots;
pub(crate) mod trace;
pub(crate) mod tracepoint;
pub(crate) mod trap_handler;
pub(crate) mod variable;
