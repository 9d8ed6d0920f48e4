//! `unspool export`: a recording in the formats of other programs.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};

use super::recording::{Reading, Recording};
use super::{record, terminal};
use crate::model::{Detail, Model};
use crate::views;

/// Draw a recording as a graph: creations, use of locks, waits
///
/// Threads with the same function and the same creation stack are one node with a count.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Cmd {
    /// The recording
    #[arg(value_name = "FILE", default_value = record::DEFAULT_FILE)]
    file: PathBuf,

    /// Output format
    #[arg(long, value_enum)]
    format: Format,

    /// Graph to draw
    #[arg(long, value_enum, default_value_t = Graph::Threads)]
    graph: Graph,

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
  unspool export --format dot server.unspool | dot -Tpng -o threads.png";

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Graphviz DOT
    Dot,
    /// A picture; needs Graphviz's program `dot`
    Svg,
}

/// `--graph`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Graph {
    /// Which thread created which, with the stack of each creation
    Threads,
    /// Threads and the objects they use; wider lines mean longer waits
    Sync,
    /// Which threads made which wait, and deadlocks
    Waits,
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let recording = Recording::open(&self.file, &self.reading, Detail::default())?;
        let mut text = Vec::new();
        self.graph.write(&recording.model, &mut text)?;
        let written = match self.format {
            Format::Dot => text,
            Format::Svg => svg(&text)?,
        };
        match &self.output {
            Some(path) => File::create(path)
                .and_then(|mut file| file.write_all(&written))
                .with_context(|| format!("cannot write {}", path.display()))?,
            None => terminal::to_stdout(|out| out.write_all(&written))?,
        }
        recording.is_whole("graph")?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Graph {
    fn write(self, model: &Model, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Graph::Threads => views::graph::threads::write(model, out),
            Graph::Sync => views::graph::sync::write(model, out),
            Graph::Waits => views::graph::waits::write(model, out),
        }
    }
}

/// The picture that Graphviz makes of a graph.
fn svg(graph: &[u8]) -> anyhow::Result<Vec<u8>> {
    let child = Command::new("dot")
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "--format svg needs Graphviz's program dot, which was not found; install graphviz, \
             or write the graph with --format dot and draw it elsewhere"
        ),
        Err(error) => return Err(error).context("cannot run Graphviz's program dot"),
    };
    // It reads all before it writes, and its warnings are short: no pipe fills up meanwhile.
    let sent = child.stdin.take().map(|mut input| input.write_all(graph));
    let output = child
        .wait_with_output()
        .context("Graphviz's program dot ended early")?;
    ensure!(
        output.status.success() && !output.stdout.is_empty(),
        "Graphviz could not draw the graph: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    sent.transpose()
        .context("Graphviz did not read the whole graph")?;
    Ok(output.stdout)
}
