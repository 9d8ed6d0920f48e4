//! `unspool report`: a capture as text or JSON.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use unspool_capture::{Capture, ReadError};
use unspool_unwind::Cache;

use super::prefer::Prefer;
use super::symbols::Symbols;
use super::{record, terminal};
use crate::model::{Model, Symbolizer};
use crate::views;

/// Show a recording: its threads as a tree, each with the stack that created it
///
/// Threads that were created on the same path and run the same function are shown as one entry
/// with a count. Names and source lines are looked up anew each time, so a report gets better
/// when debug files are added later.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Cmd {
    /// The recording
    #[arg(value_name = "FILE", default_value = record::DEFAULT_FILE)]
    file: PathBuf,

    /// What to write: text to read, or JSON for programs (docs/report-json.md)
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    #[command(flatten)]
    symbols: Symbols,

    #[command(flatten)]
    prefer: Prefer,
}

const EXAMPLES: &str = "\
Examples:
  unspool report
  unspool report board.unspool --sysroot ~/board/rootfs
  unspool report --format json | jq '.threads[].key'";

/// Formats of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let finder = self.symbols.finder()?;
        let capture = match Capture::read(&self.file) {
            Ok(capture) => capture,
            Err(ReadError::Open { path, source }) if source.kind() == ErrorKind::NotFound => {
                bail!(
                    "there is no recording {}; make one with `unspool record -- PROG`",
                    path.display()
                )
            }
            Err(error @ ReadError::Open { .. }) => return Err(error.into()),
            Err(error) => bail!("{}: {error}", self.file.display()),
        };
        let model = Model::build(
            &capture,
            &mut Symbolizer::new(finder)
                .preferring(self.prefer.ways())
                .caching(Cache::of_user()),
        );
        terminal::to_stdout(|out| match self.format {
            Format::Text => views::tree::write(&model, out, &terminal::style_for_stdout()),
            Format::Json => views::report_json::write(&model, out, &terminal::style_for_stdout()),
        })?;
        // What was shown is not all there was: a script must see that, too.
        if let Some(cut) = &capture.cut {
            bail!(
                "{}: {cut}; the report shows what comes before",
                self.file.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
