//! Text for people: each `--view` of a report in a file with its name, the stacks of an inspection,
//! and shared parts.

pub mod contention;
pub mod critical;
pub mod diff;
pub mod findings;
pub mod functions;
pub mod inspection;
pub mod lock_order;
pub mod objects;
pub mod profile;
pub mod source;
pub mod timeline;
pub mod tree;
pub mod waits;

pub(super) mod frames;
pub(super) mod line;
pub mod notes;
pub(super) mod processes;
mod system_calls;
pub(in crate::views) mod thread_state;
