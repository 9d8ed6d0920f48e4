//! Observing a program through an RSP server, into a capture.
//!
//! Nothing is concluded here: registers, stack bytes, modules, thread ids and times are noted,
//! and the model makes threads and frames of them. The only frames walked are those that tell
//! which stack bytes are worth reading. Nothing is printed either; see [`crate::cmd`].
//!
//! [`record`] plants breakpoints where threads are created, started, joined and detached, and
//! follows the program to its end; an [`Inspection`] looks at it as it is.

mod auxv;
mod bytecode;
mod calls;
mod collected_stack;
mod cpu_times;
mod creation_args;
mod creations;
mod emulator;
mod end_inspection;
mod ending;
mod error;
mod event_loop;
mod executable;
mod function_names;
mod hits;
mod inspection;
mod kernel_state;
mod launch;
mod memory;
mod modules;
mod movable;
mod notices;
mod options;
mod place;
mod planter;
mod probes;
mod program;
mod qemu_threads;
mod recorder;
mod rendezvous;
mod schedule;
mod server_clock;
mod session;
mod sink;
mod stack;
mod stack_walk;
mod stepper;
mod thread_reader;
mod threads;
mod trace_places;
mod tracepoints;
mod wanted;

use std::fs::File;
use std::io;

pub use calls::pattern::Pattern;
pub use calls::selection::{Instrumented, Sync};
pub use end_inspection::MAX_LOOKS;
pub use error::Error;
pub use inspection::Inspection;
pub use options::{Ended, Options, Outcome, ProbeKinds, Source, Subject, WantsMore};
pub use wanted::Wanted;

/// Records until the program ends, the user wants to end, or the server is gone. `open` is called
/// once the program is there, so that nothing is overwritten for a program that cannot start.
///
/// # Errors
/// Only what keeps a recording from beginning. What goes wrong later is [`Outcome::failure`], for
/// a capture exists by then.
pub fn record(options: Options, open: impl FnOnce() -> io::Result<File>) -> Result<Outcome, Error> {
    if let Source::Launch { program, .. } = &options.source {
        calls::check(&launch::find(program)?, &options.calls)?;
    }
    let attached = options.source.attached();
    event_loop::record(options, open).map_err(|error| launch::unless_ended(attached, error))
}
