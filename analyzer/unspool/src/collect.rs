//! Records a program through an RSP server into a capture.
//!
//! The collector draws no conclusions. It records registers, stack bytes, modules, thread ids and
//! times; the model derives threads and frames from them. The collector unwinds stacks only to find
//! out which bytes to read. It prints nothing either; see [`crate::cmd`].
//!
//! [`record`] plants breakpoints where threads are created, started, joined and detached, and
//! follows the program to its end. An [`Inspection`] reads the program's current state.

mod asleep;
mod auxv;
mod awaited_processes;
mod blocking_calls;
mod bytecode;
mod calls;
mod cgroup;
mod code_of_processes;
mod collected_stack;
mod cpu_times;
mod creation_args;
mod creation_routine;
mod creation_stacks;
mod creations;
mod descriptors;
mod emulator;
mod end_analysis;
mod end_inspection;
mod ending;
mod error;
mod event_loop;
mod executable;
mod file_locks;
mod function_names;
mod futex_places;
mod generated_code;
mod hang_candidates;
mod hits;
mod inspection;
mod kernel_state;
mod launch;
mod local_process;
mod memory;
mod modules;
mod movable;
mod notices;
mod options;
mod other_processes;
mod pipes;
mod place;
mod planter;
mod probes;
mod process_name;
mod program;
mod qemu_threads;
mod recorder;
mod rendezvous;
mod replaced_file;
mod samples;
mod schedule;
mod server_clock;
mod session;
mod several;
mod shared_memory;
mod sink;
mod stack;
mod stack_walk;
mod stepper;
mod thread_reader;
mod threads;
mod timers;
mod trace_places;
mod tracepoints;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

pub use asleep::Asleep;
pub use calls::pattern::Pattern;
pub use calls::selection::{Instrumented, Sync};
pub use end_analysis::{EndAnalysis, Wanted};
pub use end_inspection::MAX_LOOKS;
pub use error::Error;
pub use inspection::Inspection;
pub use local_process::{LocalProcess, MAX_RESUME, Sampled, process_of_thread};
pub use options::{
    CpuSamples, Ended, KernelRecords, Options, Outcome, ProbeKinds, Source, Subject,
};
pub use pipes::PipeUsers;
pub use process_name::ProcessName;
pub use shared_memory::{SharedMemory, SharedNames, SharedPlace};

use sink::CaptureFile;

/// Records until the program ends, the user stops the recording or the server is gone. Calls `open`
/// only after the program has started, so a failed start overwrites no file.
///
/// # Errors
/// Returns errors that prevent a recording from beginning. Later errors are
/// [`Outcome::failure`], because by then a capture exists.
pub fn record(options: Options, open: impl FnOnce() -> io::Result<File>) -> Result<Outcome, Error> {
    if let Source::Launch { program, .. } = &options.source {
        calls::check(&launch::find(program)?, &options.calls)?;
    }
    let attached = options.source.attached();
    let open = |header| {
        let file = open().map_err(Error::Output)?;
        let file = CaptureFile::new(file, header).map_err(Error::Write)?;
        Ok(file.first())
    };
    event_loop::record(options, open, || ()).map_err(|error| launch::unless_ended(attached, error))
}

/// Records several running processes of this machine into one capture, until each of them has ended
/// or the user stops the recording. `options` gets a process and the pipe by which its recorder is
/// stopped; `requests` becomes readable when the user wants the recording to end. The outcomes are
/// in the order of the processes.
///
/// # Errors
/// Returns errors that prevent the recording of one of the processes from beginning. All of them
/// then run on.
pub fn record_several(
    pids: &[u32],
    options: impl Fn(u32, OwnedFd) -> Options + std::marker::Sync,
    requests: &OwnedFd,
    open: impl FnOnce() -> io::Result<File>,
) -> Result<Vec<Outcome>, Error> {
    several::record(pids, &options, requests, open)
}
