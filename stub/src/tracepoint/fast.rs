//! Fast tracepoints: a jump in the program's text leads to code that notes the hit in memory of the program's.
//!
//! The [`planner`] decides what a hit notes, a [`jump_pad`] is the jump and the code, and the [`pool`] holds hits until
//! they are drained.

pub(crate) mod jump_pad;
pub(crate) mod planner;
pub(crate) mod pool;
