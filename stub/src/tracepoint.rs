//! Tracepoints: what clients define, what a hit collects, and what that may cost.
//!
//! An [`experiment`] has tracepoint [`definition`]s, trace state [`variable`]s and a [`frame_buffer`]. The [`budget`] pauses
//! tracepoints that cost too much. [`fast`] tracepoints are noted without a stop, and the [`trap_handler`] handles traps in
//! the program if the stub dies. Apart because nothing here needs threads or clients.

pub(crate) mod budget;
pub(crate) mod definition;
pub(crate) mod experiment;
pub(crate) mod fast;
pub(crate) mod frame_buffer;
pub(crate) mod trap_handler;
pub(crate) mod variable;
