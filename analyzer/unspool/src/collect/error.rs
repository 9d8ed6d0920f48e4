//! Errors that prevent or end the observation of a program, with advice for the user.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use unspool_capture::WriteError;

/// The reason why a program could not be observed, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program to run does not exist.
    #[error("no such program: {}; give a path, or a name found in PATH", .0.display())]
    NoProgram(OsString),
    /// The program to run cannot be executed.
    #[error("{} cannot be run: {reason}", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The reason, and the remedy.
        reason: &'static str,
    },
    /// The program is for another kind of processor.
    #[error(
        "{} is a program for {program}, and this machine is {machine}; run it under a debug server \
         (qemu-ARCH -g PORT, or unspool-stub on its own machine) and use --connect", path.display()
    )]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// The program's kind of processor.
        program: String,
        /// This machine's kind of processor.
        machine: String,
    },
    /// More processes than a recording can have.
    #[error("{0} processes are named, and a recording has at most {1}; name fewer")]
    TooManyProcesses(usize, usize),
    /// No such process.
    #[error("there is no process {0}; see `ps` for the running ones")]
    NoProcess(u32),
    /// The process ended before it could be observed.
    #[error("process {0} has ended")]
    HasEnded(u32),
    /// The user may not trace the process.
    #[error("process {pid} may not be traced: {reason}")]
    NotPermitted {
        /// The process.
        pid: u32,
        /// The reason, and the remedy.
        reason: String,
    },
    /// `unspool-stub` could not start or attach to the program.
    #[error("the stub could not start the program or attach to it: {0}")]
    Stub(String),
    /// The stub process could not be started.
    #[error("cannot start the stub: {0}")]
    StartStub(#[source] io::Error),
    /// The session with the server failed.
    #[error(transparent)]
    Rsp(#[from] unspool_rsp::Error),
    /// The connection broke during a recording.
    #[error("the connection to the server was lost: {0}")]
    Lost(#[source] unspool_rsp::Error),
    /// The unwinder does not support the target's architecture.
    #[error(
        "the target's architecture is {0}; unspool knows x86-64, aarch64 and arm (little-endian)"
    )]
    Architecture(String),
    /// The server refused to provide the program, and gave a reason.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The server did not accept the requested budget.
    #[error("the server's budget cannot be set to {asked}: {why}")]
    Budget {
        /// The requested budget.
        asked: String,
        /// The reason, and the remedy.
        why: &'static str,
    },
    /// The server has no program.
    #[error(
        "the server has no program; name a process with --attach PID, name a program after -- (for \
         a recording), or start the server with a program (unspool-stub :PORT PROG)"
    )]
    NoTarget,
    /// The server emulates a whole machine, not a program.
    #[error(
        "the server runs a whole machine (QEMU's system emulation): its threads are processors, \
         so Unspool does not support it; run unspool-stub in the machine and connect to the stub \
         (qemu/README.md), or run one program under `qemu-arm -g PORT`"
    )]
    WholeMachine,
    /// The program's file is unknown.
    #[error("the server does not say which program it runs; name its file with --exec FILE")]
    UnknownProgram,
    /// A file needed to find the creation functions is missing or wrong.
    #[error("{0}")]
    File(String),
    /// No function that creates threads could be watched.
    #[error("cannot watch thread creation: {0}")]
    NoCreation(String),
    /// More functions are to be instrumented than the limit allows.
    #[error(
        "--trace names {count} functions, and at most {most} can be instrumented at once; name fewer, \
         for example those of one file with FILE:NAME"
    )]
    TooManyFunctions {
        /// Number of functions found.
        count: usize,
        /// Maximum number of functions.
        most: usize,
    },
    /// The recording's file could not be opened.
    #[error("cannot write the recording: {0}; name another file with -o")]
    Output(#[source] io::Error),
    /// The recording's file could not be written to its end.
    #[error("{0}; the recording ended there")]
    Write(WriteError),
    /// Files needed to unwind stacks could not be used.
    #[error(
        "stacks that go through {path} are cut short: {problem}{}",
        if *others > 0 { format!(" (also those through {others} other files)") } else { String::new() }
    )]
    Files {
        /// The first of these files.
        path: String,
        /// The problem, and the remedy.
        problem: String,
        /// Number of other files.
        others: usize,
    },
    /// The server does not stop the program.
    #[error(
        "the server did not stop the program within 10 seconds, so Unspool closed the connection; \
         check whether the program still runs"
    )]
    Unstoppable,
}

impl Error {
    /// True if the connection to the server can no longer be used.
    pub(super) fn is_loss(&self) -> bool {
        match self {
            Error::Lost(_) => true,
            Error::Rsp(error) => error.is_fatal(),
            _ => false,
        }
    }
}

/// The capture's file could not be written. Records written earlier are kept.
impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        Error::Write(error)
    }
}
