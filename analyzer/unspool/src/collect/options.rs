//! The options of a recording, and its outcome.
//!
//! Separate from the recording code because all of its parts read options.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use unspool_rsp::Endpoint;

use super::calls::selection::Instrumented;
use super::end_analysis::EndAnalysis;
use super::error::Error;
use crate::store::Store;

/// The program to observe, and the way to reach it.
#[derive(Debug, Clone)]
pub enum Source {
    /// Start a program on this machine.
    Launch {
        /// Its name as in a shell: searched in `PATH` unless it contains a slash.
        program: OsString,
        /// Its arguments.
        args: Vec<OsString>,
    },
    /// Attach to a process of this machine.
    Attach {
        /// The process.
        pid: u32,
    },
    /// Connect to a server.
    Connect {
        /// The server's address.
        endpoint: Endpoint,
        /// The program on the server's machine.
        subject: Subject,
    },
}

impl Source {
    /// The local process to attach to, if any.
    pub(super) fn attached(&self) -> Option<u32> {
        match self {
            Source::Attach { pid } => Some(*pid),
            _ => None,
        }
    }
}

/// A program on a server's machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The program that the server already has.
    Served,
    /// A running process, to which the server attaches.
    Process(u32),
    /// A program, which the server starts.
    Program {
        /// Its path on the server's machine, or a name that the server searches.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// How calls are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProbeKinds {
    /// Tracepoints if the server is unspool-stub, else breakpoints
    #[default]
    Auto,
    /// The server records calls, without stopping the thread where possible
    Tracepoints,
    /// The server records calls, and each call stops its thread
    Traps,
    /// Each call stops the program; no other client can control it
    Breakpoints,
}

/// What the kernel records besides the schedule of the program's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelRecords {
    /// The CPU samples to take, if any.
    pub cpu: Option<CpuSamples>,
    /// Also the schedule of the processes that the program starts.
    pub processes: bool,
}

/// The CPU samples to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSamples {
    /// Samples per second of a thread's processor time.
    pub hz: u32,
    /// Maximum number of bytes of each stack.
    pub stack: u32,
}

/// The program to observe, and the settings.
pub struct Options {
    /// The program.
    pub source: Source,
    /// The program's local file, if the server cannot name it or this file has more symbols.
    pub exec: Option<PathBuf>,
    /// The source of the program's files.
    pub store: Store,
    /// Receives a transcript of the RSP session.
    pub rsp_log: Option<Box<dyn Write + Send>>,
    /// gdb's name of the architecture, for servers that do not describe their target.
    pub architecture: Option<String>,
    /// The kind of probes that record hits.
    pub probes: ProbeKinds,
    /// The calls to record.
    pub calls: Instrumented,
    /// What the kernel records.
    pub kernel: KernelRecords,
    /// The budget of tracepoints, in the syntax of `unspool-stub --budget`. With `none` the program
    /// waits so that no event is lost.
    pub budget: Option<String>,
    /// Finds out what else to read when the recording ends. If `None`, nothing else is read.
    pub analysis: Option<Box<dyn EndAnalysis>>,
    /// Becomes readable when the user wants the recording to end: one byte per request.
    pub stop: Option<OwnedFd>,
    /// The command line, for the capture's header.
    pub command: Vec<String>,
}

impl Options {
    /// True if other clients may control the program, because tracepoints need no control.
    pub(super) fn may_observe(&self) -> bool {
        matches!(self.source, Source::Connect { .. }) && self.probes != ProbeKinds::Breakpoints
    }
}

/// The state of the program when the recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The program exited with this code.
    Exited(i32),
    /// This Linux signal ended the program.
    Terminated(u8),
    /// The program runs on without the recorder.
    Detached,
    /// The state is unknown, because the connection broke.
    ConnectionLost,
}

/// The outcome of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// The state of the program when the recording ended.
    pub ended: Ended,
    /// The reason why the recording is incomplete, if it is.
    pub failure: Option<Error>,
    /// Warnings about patterns that name no function. The capture has them as notes, too.
    pub unmatched: Vec<String>,
}
