//! `unspool export`: a recording in the formats of other programs, which `views::export` lists.

use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, anyhow, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use unspool_image::Image;

use super::recording::{Reading, Recording, Shown};
use super::{page, record, terminal, whole_file};
use crate::model::call_graph::pvtrace;
use crate::model::{Detail, Model, Target};
use crate::views::call_sums::{self, Cut};
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

    /// Output format [default with --from: dot]
    #[arg(long, value_parser = formats(), required_unless_present = "from")]
    format: Option<&'static dyn Exporter>,

    /// Graph to draw, with dot, svg and html [default: threads; html: calls]
    #[arg(long, value_enum)]
    graph: Option<Graph>,

    /// With `--graph calls`, only threads with this function or identity
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,

    /// With `--graph calls`, leave out functions and edges with a smaller share of the time and of
    /// the calls [default: 0.5, or 0 if there are at most 50 functions]
    #[arg(long, value_name = "PERCENT", value_parser = percent, allow_negative_numbers = true)]
    min_share: Option<f64>,

    /// Instead of a recording, read a trace that another tool wrote (for `--graph calls`)
    #[arg(long, value_enum, value_name = "KIND", requires = "exec")]
    from: Option<Foreign>,

    /// The traced program, with its symbols
    #[arg(long, value_name = "PROG", requires = "from")]
    exec: Option<PathBuf>,

    /// The address at which a position-independent PROG was mapped, such as 0x555555554000
    #[arg(long, value_name = "ADDR", requires = "from", value_parser = address, default_value = "0")]
    base: u64,

    /// Stacks to count, with folded [default: waits]
    #[arg(long, value_enum)]
    stacks: Option<Stacks>,

    /// File to write, or directory for ctf [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    shown: Shown,

    #[command(flatten)]
    reading: Reading,
}

/// A trace that another program wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Foreign {
    /// pvtrace's trace.txt: E0x401136 where a function begins, X0x401136 where it ends
    Pvtrace,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse().ok();
    let number = number.filter(|percent| (0.0..=100.0).contains(percent));
    number.ok_or_else(|| "expected a percentage from 0 to 100".to_owned())
}

fn address(text: &str) -> Result<u64, String> {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).map_err(|_| "expected an address in hexadecimal".to_owned())
}

const EXAMPLES: &str = "\
Examples:
  unspool export --format svg -o threads.svg
  unspool export --graph sync --format svg -o sync.svg
  unspool export --graph calls --format svg --min-share 2 -o calls.svg
  unspool export --graph calls --format html -o calls.html
  unspool export --from pvtrace trace.txt --exec ./prog --graph calls --format svg -o calls.svg
  unspool export --format dot server.unspool | dot -Tpng -o threads.png
  unspool export --format folded | flamegraph.pl > waits.svg
  unspool export --format perfetto -o trace.pftrace     # open it at ui.perfetto.dev
  unspool export --format firefox -o profile.json       # open it at profiler.firefox.com
  unspool export --format pprof -o waits.pb.gz && go tool pprof -top waits.pb.gz
  unspool export --format gdb -o threads.gdb && gdb -p PID -x threads.gdb
  unspool export --format tfile -o hits.tf              # prints the gdb command that opens it
  unspool export --format ctf -o trace && babeltrace2 trace";

fn formats() -> impl TypedValueParser<Value = &'static dyn Exporter> {
    let names = export::FORMATS
        .iter()
        .map(|format| PossibleValue::new(format.name()).help(format.about()));
    PossibleValuesParser::new(names)
        .try_map(|name| export::format(&name).ok_or("not a format of this program"))
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let format = self.format.or_else(|| export::format("dot"));
        let format = format.context("no format")?;
        let takes = |choice| format.choices().contains(&choice);
        for (given, choice, option) in [
            (self.graph.is_some(), Choice::Graph, "--graph"),
            (self.stacks.is_some(), Choice::Stacks, "--stacks"),
            (self.from.is_some(), Choice::Graph, "--from"),
        ] {
            let format = format.name();
            ensure!(
                !given || takes(choice),
                "{option} cannot be used with --format {format}"
            );
        }
        let graph = match (self.graph, self.from) {
            (None, Some(_)) => Graph::Calls,
            (Some(graph), _) => graph,
            (None, None) => default_graph(format),
        };
        can_draw(format, graph)?;
        ensure!(
            graph == Graph::Calls || (self.identity.is_none() && self.min_share.is_none()),
            "--identity and --min-share need --graph calls"
        );
        let output = terminal::output_file(self.output.as_deref());
        ensure!(
            output.is_some() || !format.is_directory(),
            "--format {} writes a directory; name it with -o",
            format.name()
        );
        ensure!(
            output.is_some() || !format.is_binary() || !io::stdout().is_terminal(),
            "--format {} is not for a terminal; name a file with -o",
            format.name()
        );
        let options = Options {
            graph,
            cut: Cut {
                identity: self.identity.clone(),
                min_share: self.min_share,
            },
            stacks: self.stacks.unwrap_or_default(),
        };
        if self.from.is_some() {
            ensure!(
                graph == Graph::Calls,
                "the trace that --from reads contains only calls; use --graph calls"
            );
            write(format, &self.foreign()?, &options, output)?;
            return Ok(ExitCode::SUCCESS);
        }
        let detail = Detail {
            call_graph: graph == Graph::Calls,
            ..format.detail()
        };
        let recording = Recording::open(&self.file, &self.reading, detail)?;
        let recording = recording.showing(&self.shown)?;
        if graph == Graph::Calls {
            has_calls(&recording.model, self.identity.as_deref())?;
        }
        write(format, &recording.model, &options, output)?;
        let shows = match takes(Choice::Graph) {
            true => "graph",
            false => "file",
        };
        recording.is_whole(shows)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The calls of a trace that another program wrote.
    fn foreign(&self) -> anyhow::Result<Model> {
        ensure!(
            self.identity.is_none(),
            "a trace of pvtrace has no threads, so --identity selects nothing"
        );
        let exec = self.exec.as_deref().context("--from needs --exec PROG")?;
        let image = Image::open(exec)?;
        let path = match self.file == Path::new(record::DEFAULT_FILE) {
            true => Path::new(PVTRACE_FILE),
            false => &self.file,
        };
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let graph = pvtrace::read(BufReader::new(file), &image, self.base)
            .with_context(|| path.display().to_string())?;
        ensure!(
            !graph.is_empty(),
            "{}: no function begins in this trace",
            path.display()
        );
        let name = exec.file_name().unwrap_or(exec.as_os_str());
        Ok(Model {
            target: Target {
                name: name.to_string_lossy().into_owned(),
                ..Target::default()
            },
            call_graph: Some(graph),
            ..Model::default()
        })
    }
}

/// The graph that a format draws if none is named.
fn default_graph(format: &dyn Exporter) -> Graph {
    let default = Graph::default();
    let graphs = format.graphs();
    let first = graphs.first().copied().unwrap_or(default);
    if graphs.contains(&default) {
        default
    } else {
        first
    }
}

/// Fails if a format draws other graphs only.
fn can_draw(format: &dyn Exporter, graph: Graph) -> anyhow::Result<()> {
    let graphs = format.graphs();
    let name = |graph: &Graph| Some(graph.to_possible_value()?.get_name().to_owned());
    let names: Vec<String> = graphs.iter().filter_map(name).collect();
    ensure!(
        graphs.contains(&graph),
        "--format {} draws only the graph of {}; use --format svg for the others",
        format.name(),
        names.join(", ")
    );
    Ok(())
}

/// The file that pvtrace writes.
const PVTRACE_FILE: &str = "trace.txt";

/// Fails if the recording has no calls of the wanted threads.
fn has_calls(model: &Model, identity: Option<&str>) -> anyhow::Result<()> {
    let graph = model.call_graph.as_ref();
    ensure!(
        graph.is_some_and(|graph| !graph.is_empty()),
        "the recording has no calls of functions; record them with --calls or --trace"
    );
    if let Some(name) = identity {
        ensure!(
            !call_sums::identities(model, name).is_empty(),
            "no thread has the function or the identity {name}; \
             `unspool report` shows the threads"
        );
    }
    Ok(())
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
    pub(super) fn prepare(&self, recording: &Path, graph: Graph) -> anyhow::Result<()> {
        can_draw(self.format, graph)?;
        ensure!(
            self.path != recording,
            "--export would overwrite the recording {}",
            recording.display()
        );
        match self.format.is_directory() {
            true => prepare_directory(&self.path),
            false => page::prepare(&self.path),
        }
    }

    /// Writes the file.
    pub(super) fn write(&self, model: &Model, graph: Graph) -> anyhow::Result<()> {
        let options = Options {
            graph,
            ..Options::default()
        };
        write(self.format, model, &options, Some(&self.path))
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
    let Some(path) = output else {
        return complete(
            &mut |out| format.write(model, options, out),
            &mut |export| terminal::to_stdout(export),
        );
    };
    if !format.is_directory() {
        create(path, &mut |out| format.write(model, options, out))?;
        if let Some(hint) = format.hint(model, path) {
            terminal::say(&format!("To open it: {hint}"));
        }
        return Ok(());
    }
    prepare_directory(path)?;
    fs::create_dir_all(path).with_context(|| format!("cannot write {}", path.display()))?;
    format.parts(model).iter().try_for_each(|part| {
        create(&path.join(part), &mut |out| {
            format.write_part(part, model, out)
        })
    })
}

/// Writes one file.
fn create(
    path: &Path,
    write: &mut dyn FnMut(&mut dyn Write) -> Result<(), Error>,
) -> anyhow::Result<()> {
    complete(write, &mut |export| {
        whole_file::write(path, |out| export(out))
            .with_context(|| format!("cannot write {}", path.display()))
    })
}

type Export<'e> = &'e mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// Writes to an output, and returns the error of a format that lacks something.
fn complete(
    write: &mut dyn FnMut(&mut dyn Write) -> Result<(), Error>,
    to: &mut dyn FnMut(Export<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut missing = None;
    let written = to(&mut |out: &mut dyn Write| {
        write(out).map_err(|error| match error {
            Error::Write(error) => error,
            error => {
                missing = Some(anyhow!("{error}"));
                io::Error::other("incomplete")
            }
        })
    });
    missing.map_or(written, Err)
}

/// Fails if a directory has files already, or cannot be made.
fn prepare_directory(path: &Path) -> anyhow::Result<()> {
    let mut entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            ensure!(
                parent.is_dir(),
                "cannot write {}: there is no directory {}",
                path.display(),
                parent.display()
            );
            return Ok(());
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
    };
    ensure!(
        entries.next().is_none(),
        "{} is not empty; name a new directory",
        path.display()
    );
    Ok(())
}
