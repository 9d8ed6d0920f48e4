//! `unspool rsp script`: plays a scripted session against a server.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use unspool_rsp::Endpoint;

/// Play a scripted session against a server and compare its answers
///
/// The script says what to send and what to expect; the first answer that differs ends it with a
/// message that shows both. docs/transcript.md describes scripts.
#[derive(Debug, Args)]
pub(super) struct Cmd {
    /// The server: HOST:PORT, :PORT on this machine, or unix:PATH
    #[arg(value_name = "ADDR")]
    server: Endpoint,

    /// The script
    #[arg(value_name = "FILE")]
    script: PathBuf,
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        anyhow::bail!("cannot play {} against {}: not there yet", self.script.display(), self.server)
    }
}
