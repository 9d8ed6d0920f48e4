//! `unspool rsp script`: plays a scripted session against a server.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use unspool_rsp::script::Script;
use unspool_rsp::{Connection, ConnectionOptions, Endpoint};

use crate::cmd::terminal;

/// Run a scripted session against a server and compare its answers
///
/// The script lists packets to send and answers to expect. The run ends at the first
/// answer that differs, and prints the expected and the actual answer. A file that --rsp-log wrote
/// is a script, too. docs/reference/rsp-scripts.md describes scripts.
#[derive(Debug, Args)]
pub(super) struct Cmd {
    /// Server: HOST:PORT, :PORT (this machine), unix:PATH, /dev/ttyUSB0,115200
    #[arg(value_name = "ADDR")]
    server: Endpoint,

    /// The script
    #[arg(value_name = "FILE")]
    script: PathBuf,
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.script.display().to_string();
        let text = fs::read_to_string(&self.script)
            .with_context(|| format!("cannot read the script {name}"))?;
        let script = Script::parse(&name, &text)?;
        let mut connection = Connection::connect(&self.server, ConnectionOptions::default())?;
        let summary = script.run(&mut connection)?;
        terminal::to_stdout(|out| {
            writeln!(
                out,
                "{name}: sent {}, received {} as expected",
                summary.sent, summary.received
            )
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
