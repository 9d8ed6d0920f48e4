//! Opens a recording and computes its model: the first step of `report` and `export`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use unspool_capture::{Capture, Cut, ReadError};

use super::prefer::Prefer;
use super::record::named;
use super::symbols::Symbols;
use crate::model::{Detail, Model, Symbolizer};
use crate::store::Store;

/// How stacks are unwound and named.
#[derive(Debug, Args)]
pub(super) struct Reading {
    #[command(flatten)]
    pub(super) symbols: Symbols,

    #[command(flatten)]
    pub(super) prefer: Prefer,
}

/// The process that reports are about.
#[derive(Debug, Args)]
pub(super) struct Shown {
    /// Show this process first and in full, if several processes were recorded together
    #[arg(long, value_name = "PID")]
    process: Option<u64>,
}

/// A recording that has been read.
#[derive(Debug)]
pub(super) struct Recording {
    path: PathBuf,
    capture: Capture,
    /// Where the records of a process end too early, if they do.
    cut: Option<Cut>,
    symbols: Symbols,
    pub(super) model: Model,
}

impl Recording {
    /// Opens a recording and computes a model with this detail.
    pub(super) fn open(
        path: &Path,
        reading: &Reading,
        detail: Detail,
    ) -> anyhow::Result<Recording> {
        // Report a mistake in the options before reading anything.
        reading.symbols.store()?;
        let capture = read(path, 0)?;
        let further = capture.further.iter();
        let further: Vec<Capture> = further
            .map(|process| read(path, *process))
            .collect::<anyhow::Result<_>>()?;
        let symbols = reading.symbols.clone().or_of(&capture.header);
        let ways = reading.prefer.ways();
        let store = symbols.store()?;
        let model_of = |capture: &Capture| {
            let asks_files = reading.symbols.is_given()
                || !ways.is_empty()
                || store.downloads() && Symbolizer::lacks_files(capture, &store);
            let mut symbolizer = Symbolizer::new(store.clone())
                .preferring(ways.clone())
                .asking_files(asks_files);
            let mut model = Model::build_for(capture, &mut symbolizer, detail);
            model.recording.file = named(path);
            model
        };
        let model = model_of(&capture);
        let further_models = further.iter().map(model_of);
        let model = Model::together(model, further_models.collect());
        let cuts = further.into_iter().map(|capture| capture.cut);
        Ok(Recording {
            path: path.to_owned(),
            cut: capture.cut.clone().or_else(|| cuts.flatten().next()),
            capture,
            symbols,
            model,
        })
    }

    /// The recording with the chosen process as the first one.
    pub(super) fn showing(mut self, shown: &Shown) -> anyhow::Result<Recording> {
        if let Some(pid) = shown.process {
            let recorded = self
                .model
                .all_recorded()
                .map(|one| one.target.pid.to_string());
            let recorded: Vec<String> = recorded.collect();
            ensure!(
                self.model.put_first(pid),
                "--process {pid}: the recording has only {}",
                recorded.join(", ")
            );
        }
        Ok(self)
    }

    /// The program's files, and whether the program ran on this machine.
    pub(super) fn files(&self) -> anyhow::Result<(Store, bool)> {
        Ok((self.symbols.store()?, self.capture.target.local))
    }

    /// Returns an error if the recording is cut, so that scripts notice as well. `shows` names the
    /// incomplete output.
    pub(super) fn is_whole(&self, shows: &str) -> anyhow::Result<()> {
        if let Some(cut) = &self.cut {
            bail!(
                "{}: {cut}; the {shows} shows only the events before that point",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Returns an error if the recording has no whole run to compare with others.
    pub(super) fn is_comparable(&self) -> anyhow::Result<()> {
        let path = self.path.display();
        if let Some(cut) = &self.cut {
            bail!("{path}: {cut}; a part of a run cannot be compared");
        }
        ensure!(
            !self.model.recording.is_inspection(),
            "{path} is an inspection, which has no times to compare"
        );
        Ok(())
    }
}

/// Reads the records of a process, by its number in the recording.
fn read(path: &Path, process: u32) -> anyhow::Result<Capture> {
    match Capture::read_process(path, process) {
        Ok(capture) => Ok(capture),
        Err(ReadError::Open { path, source }) if source.kind() == ErrorKind::NotFound => {
            bail!(
                "there is no recording {}; make one with `unspool record PROG`",
                path.display()
            )
        }
        Err(error @ ReadError::Open { .. }) => Err(error.into()),
        Err(error) => bail!("{}: {error}", path.display()),
    }
}
