//! What to record and how, and what became of the recording.
//!
//! Apart from the code that records because every part of it reads some option.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use unspool_capture::Capture;
use unspool_rsp::Endpoint;

use super::calls::selection::Instrumented;
use super::error::Error;
use super::wanted::Wanted;
use crate::store::Store;

/// Which program to observe, and how to come to it.
#[derive(Debug, Clone)]
pub enum Source {
    /// Start it on this machine.
    Launch {
        /// Its name as a shell would take it: searched in `PATH` unless it has a slash.
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
        /// Where the server listens.
        endpoint: Endpoint,
        /// Which of its machine's programs.
        subject: Subject,
    },
}

impl Source {
    /// The process of this machine that is attached to.
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
    /// The one that the server has already.
    Served,
    /// A running process, which the server is to attach to.
    Process(u32),
    /// A program that the server is to start.
    Program {
        /// Its path there, or a name that the server searches.
        program: String,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// How calls are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProbeKinds {
    /// Tracepoints where the server is unspool-stub, else breakpoints
    #[default]
    Auto,
    /// The server records calls by itself, without stopping the thread where it can
    Tracepoints,
    /// The same, but each call stops its thread
    Traps,
    /// Each call stops the program; no other client can control it
    Breakpoints,
}

/// Says, of what has been read of a program's threads, what more would tell.
pub type WantsMore = Box<dyn FnMut(&Capture) -> Wanted>;

/// What to observe, and with what means.
pub struct Options {
    /// The program.
    pub source: Source,
    /// The program's file on this machine, where the server cannot tell or that has more symbols.
    pub exec: Option<PathBuf>,
    /// Where its files are.
    pub store: Store,
    /// Where the transcript of the RSP session goes.
    pub rsp_log: Option<Box<dyn Write + Send>>,
    /// gdb's name of the architecture, for servers that do not describe their target.
    pub architecture: Option<String>,
    /// How hits are noticed.
    pub probes: ProbeKinds,
    /// Which calls are recorded.
    pub calls: Instrumented,
    /// What tracepoints may cost the program, as `unspool-stub --budget` has it. With `none` the
    /// program waits rather than that anything is lost.
    pub budget: Option<String>,
    /// Says what more has to be read of the threads when recording ends; nothing if not given.
    pub wanted: Option<WantsMore>,
    /// Becomes readable when the user wants the recording to end, one byte for each time.
    pub stop: Option<OwnedFd>,
    /// The command line, for the capture's header.
    pub command: Vec<String>,
}

impl Options {
    /// Whether control of the program can be left to others: by tracepoints it is recorded without.
    pub(super) fn may_observe(&self) -> bool {
        matches!(self.source, Source::Connect { .. }) && self.probes != ProbeKinds::Breakpoints
    }
}

/// How the program was when the recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// This Linux signal ended it.
    Terminated(u8),
    /// It runs on, without us.
    Detached,
    /// Not known: the server went away.
    ConnectionLost,
}

/// What became of a recording.
#[derive(Debug)]
pub struct Outcome {
    /// How the program was when the recording ended.
    pub ended: Ended,
    /// Why the recording is not whole, if it is not.
    pub failure: Option<Error>,
}
