//! The server for the GDB remote protocol that runs on the target, next to the program.
//!
//! From the outside in: [`cli`] parses the command line, [`guardian`] keeps the stub's death
//! harmless, [`comm`] opens the connection, [`server`] waits for clients and for the program, and
//! [`session`] talks to one client. [`tracee`] is the program: it composes [`subscription`] (what
//! clients have requested), [`ptrace`] (the process and its threads), and [`tracepoint`] and
//! [`breakpoint`] (what is planted in it). [`schedule`] records when its threads run, and
//! [`samples`] where; both use [`thread_events`]. Below them are [`bytecode`], [`arch`] (the
//! machine) and [`sys`] (the kernel). Each module uses only modules below it
//! (docs/decisions/0006-the-stub-by-subject.md).

/// Prints a line on standard error. Unlike `eprintln!`, does not panic if the reader is gone.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}
pub(crate) use say;

mod arch;
mod breakpoint;
mod bytecode;
mod cli;
mod client;
mod comm;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod guardian;
mod output;
mod ptrace;
mod samples;
mod schedule;
mod server;
mod session;
mod subscription;
mod sys;
mod thread_events;
mod tracee;
mod tracepoint;

use std::ffi::OsString;
use std::process::ExitCode;

/// The program's name in messages.
const NAME: &str = "unspool-stub";

pub use schedule::prepare as prepare_schedule;

/// Runs the server with the arguments after the program's name, until there is nothing left to
/// serve.
///
/// Prints an error as one sentence on standard error, and then returns a non-zero exit code.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    match cli::parse(args) {
        Ok(cli::Command::Help) => {
            output::print(format!("{}\n", cli::HELP).as_bytes());
            ExitCode::SUCCESS
        }
        Ok(cli::Command::Version) => {
            output::print(format!("{NAME} {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
            ExitCode::SUCCESS
        }
        Ok(cli::Command::Serve(options)) => match guardian::split() {
            Ok(None) => match server::serve(options) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(&error),
            },
            Ok(Some(code)) => code,
            Err(errno) => fail(&server::ServeError::System(errno)),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    crate::say!("{NAME}: {error}");
    ExitCode::FAILURE
}
