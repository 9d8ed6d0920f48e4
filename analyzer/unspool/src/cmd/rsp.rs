//! `unspool rsp`: tools for the GDB remote protocol itself.

mod script;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Tools for the GDB remote protocol itself
#[derive(Debug, Args)]
pub(super) struct Cmd {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Script(script::Cmd),
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Script(cmd) => cmd.run(),
        }
    }
}
