//! What a format is: a name, the options it takes, and one function from the model to bytes.
//!
//! Separate from the registry, which names all formats, because each format uses this.

use std::fmt::Debug;
use std::io::{self, Write};
use std::path::Path;

use clap::ValueEnum;
use thiserror::Error;

use crate::model::{Detail, Model};
use crate::views::call_sums::Cut;
use crate::views::graph::Graph;

/// A format of other programs.
pub trait Exporter: Debug + Sync {
    /// The name in `--format`.
    fn name(&self) -> &'static str;

    /// One line for the help text.
    fn about(&self) -> &'static str;

    /// The options that it takes.
    fn choices(&self) -> &'static [Choice] {
        &[]
    }

    /// The graphs that it can draw, if it takes [`Choice::Graph`].
    fn graphs(&self) -> &'static [Graph] {
        Graph::value_variants()
    }

    /// The detail that the model must have.
    fn detail(&self) -> Detail {
        Detail::default()
    }

    /// True if the format is not text, so that a terminal cannot show it.
    fn is_binary(&self) -> bool {
        false
    }

    /// True if the format is a directory of several files.
    fn is_directory(&self) -> bool {
        false
    }

    /// The names of the files of a directory.
    fn parts(&self, _: &Model) -> Vec<String> {
        Vec::new()
    }

    /// Writes one file of a directory.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn write_part(&self, _: &str, model: &Model, out: &mut dyn Write) -> Result<(), Error> {
        self.write(model, &Options::default(), out)
    }

    /// The command that opens the written file, if it is not obvious.
    fn hint(&self, _: &Model, _: &Path) -> Option<String> {
        None
    }

    /// Writes the model.
    ///
    /// # Errors
    /// A failed write, or that something the format needs is missing; then nothing was written.
    fn write(&self, model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error>;
}

/// The options of all formats. A format looks at those it takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The graph to draw.
    pub graph: Graph,
    /// The part of a call graph to draw.
    pub cut: Cut,
    /// The stacks to count.
    pub stacks: Stacks,
}

/// An option that only some formats take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// [`Options::graph`].
    Graph,
    /// [`Options::stacks`].
    Stacks,
}

/// What stacks are counted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    /// Where threads waited: nanoseconds per stack
    #[default]
    Waits,
    /// Where threads were created: number of threads per stack
    Creations,
    /// Where threads spent processor time (`record --cpu`): nanoseconds per stack
    Cpu,
    /// Where threads were blocked (`record --cpu`): nanoseconds per stack
    OffCpu,
}

/// The reason why an export failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The output could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// Something that the format needs is missing. A whole sentence.
    #[error("{0}")]
    Missing(String),
}
