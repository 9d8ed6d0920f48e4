//! The `unspool` command: where every thread of a running program came from.
//!
//! Four parts, and data flows one way through them: [`cmd`] reads the command line and is the
//! only one besides [`views`] that prints; [`collect`] observes a program through an RSP server
//! and fills a capture; [`model`] recomputes threads, frames and names from a capture; [`views`]
//! write a model as text or JSON. `collect` knows nothing of `model` and `views`. The table
//! [`primitives`] lists the functions of mutexes and other primitives for `collect` and `model`;
//! [`platform`] holds what differs by architecture and C library; the [`store`] has the program's
//! files for both, and `debuginfod` gets missing ones from servers.

pub mod cmd;
pub mod collect;
mod debuginfod;
mod maps;
pub mod model;
pub mod platform;
pub mod primitives;
pub mod store;
pub mod views;
