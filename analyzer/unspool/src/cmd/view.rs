//! `unspool view`: a recording in the browser.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::recording::{Reading, Recording, Shown};
use super::{page, record, terminal};
use crate::model::Detail;

/// Show a recording in the browser: timeline, threads, locks, flame graphs
///
/// Writes the report as one HTML file in the directory for temporary files, and opens it. The file
/// needs no network and no server. `unspool report --format html` writes the same file elsewhere.
#[derive(Debug, Args)]
pub(super) struct Cmd {
    /// The recording
    #[arg(value_name = "FILE", default_value = record::DEFAULT_FILE)]
    file: PathBuf,

    /// Print the path of the HTML file instead of opening it
    #[arg(long)]
    no_open: bool,

    /// Leave out the source files
    #[arg(long)]
    no_source: bool,

    #[command(flatten)]
    shown: Shown,

    #[command(flatten)]
    reading: Reading,
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let detail = Detail::JOURNAL;
        let recording = Recording::open(&self.file, &self.reading, detail)?;
        let recording = recording.showing(&self.shown)?;
        let model = &recording.model;
        let sources = match self.no_source {
            true => Vec::new(),
            false => page::sources(model),
        };
        let path = page::write_temporary(model, sources)?;
        terminal::to_stdout(|out| writeln!(out, "{}", path.display()))?;
        if !self.no_open {
            page::open_browser(&path)?;
        }
        recording.is_whole("report")?;
        Ok(ExitCode::SUCCESS)
    }
}
