//! `unspool stub`: the stub's own command line, so that one installed binary can trace locally.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;

/// Serve a program to gdb or to unspool, as gdbserver does
///
/// The same as the separate program unspool-stub. `unspool stub --help` lists its options.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(super) struct Cmd {
    /// The stub's arguments: [--once] COMM PROG [ARGS...] or --attach COMM PID
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        Ok(unspool_stub::main(self.args.into_iter()))
    }
}
