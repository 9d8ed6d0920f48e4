//! The traced program: a process, its threads, what is planted in its memory.
//!
//! From outside it is in one of two states. *Halted*: every thread is stopped and can be looked at.
//! *Going*: threads do what the last [`resume`](Process::resume) asked, until [`poll`](Process::poll)
//! has a [`Stop`] to report, and then it is halted again. Nothing here knows of packets or clients.

pub(crate) mod auxv;
pub(crate) mod breakpoints;
mod children;
mod conditions;
mod draining;
mod end;
mod ending;
mod events;
pub(crate) mod family;
mod fatal;
mod holding;
mod injecting;
pub(crate) mod interest;
mod jumping;
pub(crate) mod libraries;
pub(crate) mod log;
mod memory;
pub(crate) mod news;
mod non_stop;
mod passing;
mod peeking;
mod probing;
pub(crate) mod process;
mod resting;
mod resume;
mod settling;
mod sparing;
pub(crate) mod stalls;
pub(crate) mod start;
mod stepping;
pub(crate) mod thread;
mod threads;
mod trap_handler;
pub(crate) mod unclaimed;
mod walking;
mod watching;

pub(crate) use interest::Seat;
pub(crate) use process::{Cause, Process, Stop};
pub(crate) use resume::Action;
pub(crate) use start::{Error, Program};
