//! Recordings in the formats of other programs: one file a format, and the registry of all.
//!
//! A format is a type with [`Exporter`]. It reads the finished model and writes as it goes, so that
//! the written file is never in memory as a whole. To add one: a file here, and its line in
//! [`FORMATS`].

mod chrome;
mod dot;
mod folded;
mod perfetto;
mod svg;
mod tracks;

use std::fmt::Debug;
use std::io::{self, Write};

use clap::ValueEnum;
use thiserror::Error;

use super::graph::Graph;
use crate::model::{Detail, Model};

/// All formats, in the order of the help text.
pub static FORMATS: &[&dyn Exporter] = &[
    &dot::Dot,
    &svg::Svg,
    &folded::Folded,
    &perfetto::Perfetto,
    &chrome::Chrome,
];

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

    /// The detail that the model must have.
    fn detail(&self) -> Detail {
        Detail::default()
    }

    /// True if the format is not text, so that a terminal cannot show it.
    fn is_binary(&self) -> bool {
        false
    }

    /// Writes the model.
    ///
    /// # Errors
    /// A failed write, or that something the format needs is missing; then nothing was written.
    fn write(&self, model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error>;
}

/// The options of all formats. A format looks at those it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The graph to draw.
    pub graph: Graph,
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
    /// Where threads waited, in nanoseconds
    #[default]
    Waits,
    /// Where threads were created, in threads
    Creations,
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

/// The format with a name.
pub fn format(name: &str) -> Option<&'static dyn Exporter> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}
