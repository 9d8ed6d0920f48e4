//! Text for people: each `--view` of a report in a file with its name, the stacks of an inspection,
//! and shared parts.

use std::io::{self, Write};

use super::Style;
use crate::model::Model;

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

/// A view of one process.
pub type View<'a> = &'a mut dyn FnMut(&Model, &mut dyn Write, &Style) -> io::Result<()>;

/// Writes a view of each process of a recording, one below the other.
///
/// # Errors
/// Returns an error if `out` cannot be written.
pub fn each(model: &Model, out: &mut dyn Write, style: &Style, view: View<'_>) -> io::Result<()> {
    for (index, one) in model.all_recorded().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        view(one, out, style)?;
    }
    Ok(())
}
