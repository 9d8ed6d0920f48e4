//! The binary `unspool-stub`. All code is in the library, so that `unspool stub` is the same
//! program.

use std::process::ExitCode;

fn main() -> ExitCode {
    unspool_stub::main(std::env::args_os().skip(1))
}
