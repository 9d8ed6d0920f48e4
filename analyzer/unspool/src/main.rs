//! Entry point of the `unspool` command; everything it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    unspool::cmd::main(std::env::args_os())
}
