//! `unspool export`: a recording in the formats of other programs, which `views::export` lists.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::recording::{Reading, Recording};
use super::{page, record, terminal};
use crate::model::{Detail, Model};
use crate::views::export::{self, Choice, Error, Exporter, Options, Stacks};
use crate::views::graph::Graph;

/// Write a recording for other programs: graphs, flame graphs, trace viewers, profiles, gdb
///
/// In graphs, threads with the same function and the same creation stack are one node with a count.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Cmd {
    /// The recording
    #[arg(value_name = "FILE", default_value = record::DEFAULT_FILE)]
    file: PathBuf,

    /// Output format
    #[arg(long, value_parser = formats())]
    format: &'static dyn Exporter,

    /// Graph to draw, with dot and svg [default: threads]
    #[arg(long, value_enum)]
    graph: Option<Graph>,

    /// Stacks to count, with folded [default: waits]
    #[arg(long, value_enum)]
    stacks: Option<Stacks>,

    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    reading: Reading,
}

const EXAMPLES: &str = "\
Examples:
  unspool export --format svg -o threads.svg
  unspool export --graph sync --format svg -o sync.svg
  unspool export --format dot server.unspool | dot -Tpng -o threads.png
  unspool export --format folded | flamegraph.pl > waits.svg
  unspool export --format perfetto -o trace.pftrace     # open it at ui.perfetto.dev
  unspool export --format firefox -o profile.json       # open it at profiler.firefox.com
  unspool export --format pprof -o waits.pb.gz && go tool pprof -top waits.pb.gz
  unspool export --format gdb -o threads.gdb && gdb -p PID -x threads.gdb";

fn formats() -> impl TypedValueParser<Value = &'static dyn Exporter> {
    let names = export::FORMATS
        .iter()
        .map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(names)
        .try_map(|name| export::format(&name).ok_or("not a format of this program"))
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let takes = |choice| self.format.choices().contains(&choice);
        for (given, choice, option) in [
            (self.graph.is_some(), Choice::Graph, "--graph"),
            (self.stacks.is_some(), Choice::Stacks, "--stacks"),
        ] {
            let format = self.format.name();
            ensure!(
                !given || takes(choice),
                "{option} cannot be used with --format {format}"
            );
        }
        ensure!(
            self.output.is_some() || !self.format.is_binary() || !io::stdout().is_terminal(),
            "--format {} is not for a terminal; name a file with -o",
            self.format.name()
        );
        let options = Options {
            graph: self.graph.unwrap_or_default(),
            stacks: self.stacks.unwrap_or_default(),
        };
        let recording = Recording::open(&self.file, &self.reading, self.format.detail())?;
        let output = self.output.as_deref();
        write(self.format, &recording.model, &options, output)?;
        let shows = match takes(Choice::Graph) {
            true => "graph",
            false => "file",
        };
        recording.is_whole(shows)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A file to write when a recording ends, given as `FORMAT:FILE`.
#[derive(Clone, Debug)]
pub(super) struct Request {
    format: &'static dyn Exporter,
    path: PathBuf,
}

impl FromStr for Request {
    type Err = String;

    fn from_str(text: &str) -> Result<Request, String> {
        let named = text.split_once(':').filter(|(_, path)| !path.is_empty());
        let (name, path) = named.ok_or("expected FORMAT:FILE, such as perfetto:trace.pftrace")?;
        let format = export::format(name).ok_or_else(|| {
            let all: Vec<&str> = export::FORMATS.iter().map(|format| format.name()).collect();
            format!("the formats are {}", all.join(", "))
        })?;
        Ok(Request {
            format,
            path: path.into(),
        })
    }
}

impl Request {
    /// The detail that the model must have.
    pub(super) fn detail(&self) -> Detail {
        self.format.detail()
    }

    /// Checks that the file can be written, before a program runs for it.
    pub(super) fn prepare(&self, recording: &Path) -> anyhow::Result<()> {
        ensure!(
            self.path != recording,
            "--export would overwrite the recording {}",
            recording.display()
        );
        page::prepare(&self.path)
    }

    /// Writes the file.
    pub(super) fn write(&self, model: &Model) -> anyhow::Result<()> {
        write(self.format, model, &Options::default(), Some(&self.path))
            .with_context(|| format!("cannot export {}", self.format.name()))
    }
}

/// Writes a model to a file, or to standard output.
fn write(
    format: &dyn Exporter,
    model: &Model,
    options: &Options,
    output: Option<&Path>,
) -> anyhow::Result<()> {
    let mut missing = None;
    let mut export = |out: &mut dyn Write| match format.write(model, options, out) {
        Ok(()) => out.flush(),
        Err(Error::Write(error)) => Err(error),
        Err(error) => {
            missing = Some(anyhow!("{error}"));
            Ok(())
        }
    };
    match output {
        Some(path) => export(&mut BufWriter::new(Created { path, file: None }))
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => terminal::to_stdout(export)?,
    }
    missing.map_or(Ok(()), Err)
}

/// A file that is created when the first bytes are written, so that an export that fails before
/// leaves an earlier file as it is.
struct Created<'p> {
    path: &'p Path,
    file: Option<File>,
}

impl Write for Created<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create(self.path)?),
        };
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), File::flush)
    }
}
