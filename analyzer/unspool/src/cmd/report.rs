//! `unspool report`: a capture as text, JSON or an HTML page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};

use super::addresses::is_recording;
use super::fail_on::FailOn;
use super::record::parse_seconds;
use super::recording::{Reading, Recording, Shown};
use super::{number, page, profile, record, terminal};
use crate::model::{Detail, Listing, Model};
use crate::views::text::profile::Selection;
use crate::views::text::source::Excerpt;
use crate::views::text::timeline::Zoom;
use crate::views::{self, Style};

/// Show a recording: its threads as a tree, each with the stack that created it
///
/// Threads with the same function and the same creation stack are one entry with a count. Names
/// and source lines are looked up each time, so a report gets better when you add debug files.
#[derive(Debug, Args)]
#[command(
    override_usage = "unspool report [OPTIONS] [FILE]\n       \
                      unspool report [OPTIONS] [FILE] --view source SOURCE[:LINE]",
    after_help = EXAMPLES
)]
pub(super) struct Cmd {
    /// The recording [default: capture.unspool]
    #[arg(value_name = "FILE")]
    names: Vec<String>,

    /// Part of the recording to show as text; JSON has everything
    #[arg(long, value_enum, value_name = "VIEW", default_value_t = View::Tree)]
    view: View,

    /// Output format; docs/reference/report-json.md describes the JSON
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,

    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Leave the source files out of the HTML page
    #[arg(long)]
    no_source: bool,

    /// Start of the timeline, in seconds since the recording began
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    from: Option<u64>,

    /// End of the timeline, in seconds since the recording began
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    to: Option<u64>,

    /// Draw one line per thread in the timeline, also for many threads; show all rows of the waits
    #[arg(long)]
    each: bool,

    /// Callers and callees of a function in the profile: its name, or a part of it
    #[arg(long, value_name = "FUNC", conflicts_with = "by")]
    focus: Option<String>,

    /// Source lines of a function in the profile, with the time on each
    #[arg(long, value_name = "FUNC", conflicts_with_all = ["focus", "by", "disasm"])]
    source: Option<String>,

    /// Instructions of a function in the profile, with the time at each
    #[arg(long, value_name = "FUNC", conflicts_with_all = ["focus", "by"])]
    disasm: Option<String>,

    /// Split the profile into several tables
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,

    /// In the profile, show where threads were blocked, not where they ran
    #[arg(long, conflicts_with_all = ["source", "disasm"])]
    off_cpu: bool,

    /// Print what is missing or doubtful in the recording, in full, instead of a view
    #[arg(long, conflicts_with = "format")]
    notes: bool,

    /// Width of the text in columns [default: the terminal's]
    #[arg(long, value_name = "COLUMNS", value_parser = number::whole(40_u16..=1000), allow_negative_numbers = true)]
    width: Option<u16>,

    #[command(flatten)]
    shown: Shown,

    #[command(flatten)]
    fail_on: FailOn,

    #[command(flatten)]
    reading: Reading,
}

const EXAMPLES: &str = "\
Examples:
  unspool report
  unspool report board.unspool --sysroot ~/board/rootfs
  unspool report --view timeline --from 0.2 --to 0.25
  unspool report --view source orders.c:37
  unspool report --view profile --focus deflate
  unspool report --view profile --off-cpu
  unspool report --view findings --fail-on deadlock,lock-order
  unspool report --format html -o report.html
  unspool report --format json | jq '.threads[].key'";

/// Output formats of commands that print facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// Text for a terminal
    Text,
    /// Everything, for other programs
    Json,
    /// One page for a browser, with a timeline; needs no network
    Html,
}

/// `--view`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum View {
    /// Which thread created which, and where
    Tree,
    /// When each thread lived, ran and waited
    Timeline,
    /// Problems, with the evidence
    Findings,
    /// Which threads waited for which, and how long
    Waits,
    /// Locks, conditions and so on: users, hold times, wait times
    Objects,
    /// Waits for objects that another thread held, with both threads' stacks
    Contention,
    /// Locks that were taken while another one was held, circles first
    LockOrder,
    /// What determined the length of the run, and what would shorten it
    Critical,
    /// Recorded functions: calls, times, callers
    Functions,
    /// Lines of a source file, with what happened on them
    Source,
    /// Functions by the processor time spent in them (`record --cpu`)
    Profile,
}

/// `--by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Thread; threads with the same function and creation stack share a table
    Thread,
}

/// Converts a decimal number of seconds to nanoseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "expected seconds since the recording began, such as 0.25".to_owned();
    parse_seconds(text)
        .and_then(|time| u64::try_from(time.as_nanos()).ok())
        .ok_or_else(wrong)
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (file, place) = self.names()?;
        if let (Some(from), Some(to)) = (self.from, self.to) {
            ensure!(from < to, "--to must be later than --from");
        }
        ensure!(
            self.view == View::Profile || !self.divides_profile(),
            "--focus, --by, --off-cpu, --source and --disasm are options of --view profile"
        );
        let output = terminal::output_file(self.output.as_deref());
        if self.format == ReportFormat::Html && output.is_none() {
            terminal::ensure_page_is_wanted("name a file with -o, or use `unspool view`")?;
        }
        let detail = Detail {
            span: self.span(),
            journal: self.format == ReportFormat::Html,
            ..Detail::default()
        };
        let recording = Recording::open(file, &self.reading, detail)?;
        let mut recording = recording.showing(&self.shown)?;
        if self.format == ReportFormat::Text || self.notes {
            recording.model.merge_notes();
        }
        let model = &recording.model;
        let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
        let duration_ns = model.recording.duration_ns;
        ensure!(
            self.from.is_none_or(|from| from < duration_ns.max(1)),
            "--from is {}, but the recording is from 0 s to {}",
            seconds(self.from.unwrap_or(0)),
            seconds(duration_ns)
        );
        let mut style = terminal::style_for_stdout();
        if let Some(width) = self.width {
            style.width = usize::from(width);
        }
        style.all_rows = self.each;
        if output.is_some() {
            style.color = false;
        }
        let each = |view: views::text::View<'_>| {
            terminal::to_output(output, |out| views::text::each(model, out, &style, view))
        };
        match (self.format, self.view) {
            _ if self.notes => each(&mut views::text::notes::write)?,
            (ReportFormat::Html, _) => {
                let sources = match self.no_source {
                    true => Vec::new(),
                    false => page::sources(model),
                };
                terminal::to_output(output, |out| views::html::write(model, &sources, out))?;
            }
            (ReportFormat::Json, _) => {
                terminal::to_output(output, |out| views::json::report::write(model, out, &style))?;
            }
            (ReportFormat::Text, View::Tree) => each(&mut views::text::tree::write)?,
            (ReportFormat::Text, View::Findings) => each(&mut views::text::findings::write)?,
            (ReportFormat::Text, View::Waits) => each(&mut views::text::waits::write)?,
            (ReportFormat::Text, View::Objects) => each(&mut views::text::objects::write)?,
            (ReportFormat::Text, View::Contention) => each(&mut views::text::contention::write)?,
            (ReportFormat::Text, View::LockOrder) => each(&mut views::text::lock_order::write)?,
            (ReportFormat::Text, View::Critical) => each(&mut views::text::critical::write)?,
            (ReportFormat::Text, View::Functions) => each(&mut views::text::functions::write)?,
            (ReportFormat::Text, View::Timeline) => {
                let zoom = Zoom {
                    from_ns: self.from,
                    to_ns: self.to,
                    each: self.each,
                };
                terminal::to_output(output, |out| {
                    views::text::timeline::write(model, zoom, out, &style)
                })?;
            }
            (ReportFormat::Text, View::Profile) if self.source.is_some() => {
                let function = self.source.as_deref().unwrap_or_default();
                profile::source(model, function, output, &style)?;
            }
            (ReportFormat::Text, View::Profile) if self.disasm.is_some() => {
                let function = self.disasm.as_deref().unwrap_or_default();
                let (store, local) = recording.files()?;
                profile::disassembly(model, &store, local, function, output, &style)?;
            }
            (ReportFormat::Text, View::Profile) => {
                let selection = Selection {
                    focus: self.focus.as_deref(),
                    by_thread: self.by == Some(By::Thread),
                    off_cpu: self.off_cpu,
                };
                let mut is_found = false;
                each(&mut |model, out, style| {
                    is_found |= views::text::profile::write(model, selection, out, style)?;
                    Ok(())
                })?;
                let wanted = self.focus.as_deref().unwrap_or_default();
                let kind = if self.off_cpu { "off-CPU" } else { "CPU" };
                ensure!(is_found, "no {kind} sample has a function {wanted}");
            }
            (ReportFormat::Text, View::Source) => {
                source(model, place.unwrap_or_default(), output, &style)?;
            }
        }
        recording.is_whole("report")?;
        Ok(self.fail_on.exit_code(model).unwrap_or(ExitCode::SUCCESS))
    }

    /// True if an option selects a part of the CPU profile.
    fn divides_profile(&self) -> bool {
        let functions = [&self.focus, &self.source, &self.disasm];
        self.off_cpu || self.by.is_some() || functions.iter().any(|function| function.is_some())
    }

    /// The part of the recording that `--from` and `--to` select, in nanoseconds.
    fn span(&self) -> Option<(u64, u64)> {
        let to = self.to.or(self.from.map(|_| u64::MAX))?;
        Some((self.from.unwrap_or(0), to))
    }

    /// The recording, and the place in the sources if the command shows one.
    fn names(&self) -> anyhow::Result<(&Path, Option<&str>)> {
        let of_source = self.view == View::Source && self.format == ReportFormat::Text;
        let (file, place) = match &self.names[..] {
            [] => (None, None),
            [file] if of_source && is_recording(Path::new(file)) => bail!(
                "--view source needs a source file, too: \
                 `unspool report {file} --view source orders.c`"
            ),
            [place] if of_source => (None, Some(place)),
            [file] => (Some(file), None),
            // Either may come first. A place with a line number is never the name of a file.
            [place, file]
                if of_source && !Path::new(place).exists() && Path::new(file).exists() =>
            {
                (Some(file), Some(place))
            }
            [file, place] if of_source => (Some(file), Some(place)),
            [_, other, ..] => bail!("expected one recording, but {other} was given, too"),
        };
        ensure!(
            !of_source || place.is_some(),
            "--view source needs a source file, such as orders.c or orders.c:37"
        );
        let file = file.map_or(record::DEFAULT_FILE, String::as_str);
        Ok((Path::new(file), place.map(String::as_str)))
    }
}

/// Shows `FILE` or `FILE:LINE` of the sources.
fn source(model: &Model, place: &str, output: Option<&Path>, style: &Style) -> anyhow::Result<()> {
    let (wanted, line) = match place.rsplit_once(':') {
        Some((file, line)) if !file.is_empty() => {
            let number = line.parse().ok().filter(|line| *line > 0);
            let number = number
                .with_context(|| format!("expected a line number after {file}:, not {line:?}"))?;
            (file, Some(number))
        }
        _ => (place, None),
    };
    let listings = Listing::of(model, wanted);
    let listing = match &listings[..] {
        [one] => one,
        [] => bail!(
            "the recording has no stack with a line of {wanted}; the stacks in `unspool report` \
             name the files, if the program has debug information"
        ),
        several => {
            let paths: Vec<&str> = several.iter().map(|listing| &*listing.file).collect();
            bail!(
                "{wanted} matches several files; give more of the path: {}",
                paths.join(", ")
            )
        }
    };
    // Try the path from the debug information first, then the path on the command line.
    let mut here = views::html::source_paths(model);
    here.retain(|path| *path == listing.file);
    let is_own = !here.is_empty();
    here.push(wanted.to_owned());
    let found = here.iter().map(Path::new).find_map(|path| {
        let bytes = std::fs::read(path).ok()?;
        Some((path, String::from_utf8_lossy(&bytes).into_owned()))
    });
    let doubt = match &found {
        None if !is_own => Some(page::FROM_SERVER.to_owned()),
        None => Some("The file was not found, so only line numbers are shown.".to_owned()),
        Some((path, _)) if page::is_younger(path, model) => Some(page::CHANGED.to_owned()),
        Some(_) => None,
    };
    let excerpt = Excerpt {
        listing,
        text: found.as_ref().map(|(_, text)| text.as_str()),
        line,
        doubt: doubt.as_deref(),
    };
    terminal::to_output(output, |out| {
        views::text::source::write(model, &excerpt, out, style)
    })
}
