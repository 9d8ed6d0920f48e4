//! The GDB remote protocol server that runs beside the program on the target.
//!
//! From the outside in: [`cli`] reads the command line, [`guardian`] makes our death harmless,
//! [`comm`] opens the connection, [`server`] waits for clients and for the program, and [`session`]
//! talks to one client. [`tracee`] is the program: it composes [`subscription`] (what clients have
//! asked for), [`ptrace`] (the process and its threads), [`tracepoint`] and [`breakpoint`] (what is
//! planted in it). [`schedule`] reads when its threads run. Below them are [`bytecode`], [`arch`]
//! (the machine) and [`sys`] (the kernel). Each uses only those below it
//! (docs/decisions/0006-the-stub-by-subject.md).

/// A line on standard error. A reader that has gone must not end us: `eprintln!` would panic.
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
mod schedule;
mod server;
mod session;
mod subscription;
mod sys;
mod tracee;
mod tracepoint;

use std::ffi::OsString;
use std::process::ExitCode;

/// What this program calls itself in messages.
const NAME: &str = "unspool-stub";

/// Runs the server with the arguments that follow the program's name, until its work is done.
///
/// Errors are reported on standard error, in one sentence; the exit code then is not zero.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    match cli::parse(args) {
        Ok(cli::Command::Help) => {
            println!("{}", cli::HELP);
            ExitCode::SUCCESS
        }
        Ok(cli::Command::Version) => {
            println!("{NAME} {}", env!("CARGO_PKG_VERSION"));
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
