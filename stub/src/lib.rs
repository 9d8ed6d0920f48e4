//! The GDB remote protocol server that runs beside the program on the target.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the server with the arguments that follow the program's name, until its work is done.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let _ = args;
    eprintln!("unspool-stub: not written yet");
    ExitCode::FAILURE
}
