//! The options that say which program: attach to a process, or connect to a debug server.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use unspool_rsp::Endpoint;

use crate::collect::Source;

#[derive(Debug, Args)]
#[command(next_help_heading = "Which program")]
pub(super) struct Target {
    /// Attach to the running process PID on this machine
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "connect")]
    pub(super) attach: Option<u32>,

    /// Connect to a debug server: HOST:PORT, :PORT on this machine, unix:PATH, or a serial line (/dev/ttyUSB0,115200)
    ///
    /// Any server that speaks the GDB remote protocol will do: unspool-stub, gdbserver,
    /// `qemu-arm -g PORT`. The server must have a program loaded or attached to.
    #[arg(long, value_name = "ADDR", value_parser = endpoint)]
    pub(super) connect: Option<Endpoint>,

    /// The program's file on this machine, when the server cannot tell which it is
    #[arg(long, value_name = "FILE", requires = "connect")]
    exec: Option<PathBuf>,

    /// Architecture, for a server that does not describe its registers: i386:x86-64, aarch64, arm
    #[arg(long = "arch", value_name = "NAME", requires = "connect")]
    pub(super) architecture: Option<String>,

    /// Write every packet sent and received to FILE, readable (docs/transcript.md)
    #[arg(long, value_name = "FILE")]
    rsp_log: Option<PathBuf>,
}

impl Target {
    /// What to observe: `program` when it is not empty, else what the options name.
    pub(super) fn source(&self, program: Vec<OsString>) -> anyhow::Result<Source> {
        if let Some(exec) = self.exec.as_ref().filter(|exec| !exec.is_file()) {
            anyhow::bail!("--exec {}: no such file", exec.display());
        }
        Ok(match (self.attach, &self.connect) {
            (Some(pid), _) => Source::Attach { pid },
            (None, Some(endpoint)) => Source::Connect {
                endpoint: endpoint.clone(),
                exec: self.exec.clone(),
            },
            (None, None) => {
                let mut words = program.into_iter();
                let program = words
                    .next()
                    .context("no program is named; write it after --")?;
                Source::Launch {
                    program,
                    args: words.collect(),
                }
            }
        })
    }

    /// The file for `--rsp-log`, opened.
    pub(super) fn rsp_log(&self) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
        let open = |path: &PathBuf| -> anyhow::Result<Box<dyn Write + Send>> {
            let file = File::create(path)
                .with_context(|| format!("cannot write the log {}", path.display()))?;
            Ok(Box::new(file))
        };
        self.rsp_log.as_ref().map(open).transpose()
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    text.parse().map_err(|error| format!("{error}"))
}
