//! One process traced with ptrace(2): its threads with their stops and registers, the kernel's
//! reports, and resuming.
//!
//! Reports become [`events`]; the layer above decides what an event means. Nothing here knows of
//! clients, or of traps planted in the program's memory.

pub(crate) mod action;
pub(crate) mod attach;
pub(crate) mod auxv;
pub(crate) mod blocked_call;
pub(crate) mod environment;
pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod link_map;
mod memory;
pub(crate) mod process;
pub(crate) mod remote_syscall;
pub(crate) mod resume;
mod rewind;
pub(crate) mod run_state;
mod step_reset;
pub(crate) mod stop;
pub(crate) mod thread;
mod thread_exit;
pub(crate) mod threads;
pub(crate) mod wait_queue;
mod watchpoints;
