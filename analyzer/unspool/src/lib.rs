//! The `unspool` command: where every thread of a running program came from.
//!
//! Four parts, and data flows one way through them: [`cmd`] reads the command line and is the
//! only one besides [`views`] that prints; [`collect`] observes a program through an RSP server
//! and fills a capture; [`model`] recomputes threads, frames and names from a capture; [`views`]
//! write a model as text or JSON. `collect` knows nothing of `model` and `views`. The table [`primitives`]
//! tells both `collect` and `model` which functions are those of mutexes and the like, and [`syscall`]
//! which system call a thread is in; [`c_library`] tells C libraries by their names, and the [`store`] has the program's files for
//! both.

pub mod c_library;
pub mod cmd;
pub mod collect;
mod maps;
pub mod model;
pub mod primitives;
pub mod store;
pub mod syscall;
pub mod views;
