//! One traced process and its threads, through ptrace(2): stops, registers, reports, and how threads go on.

pub(crate) mod action;
pub(crate) mod auxv;
pub(crate) mod link_map;
mod rewind;
pub(crate) mod stop;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod wait_queue;
