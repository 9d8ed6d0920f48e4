//! What is planted in the program beside a client's breakpoints, and what it yields.
//!
//! A [`patch`] is bytes of ours where the program had others. [`slots`] are patches in bytes that nothing uses
//! ([`caves`]): there an instruction runs whose place a trap has taken, so that the trap can stay. Nothing here knows
//! of threads or clients.

mod caves;
pub(crate) mod patch;
pub(crate) mod slots;
