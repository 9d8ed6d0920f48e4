//! `unspool diff`: what changed between two recordings, or two sets of recordings.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::recording::{Reading, Recording};
use super::{fail_on, terminal};
use crate::model::Detail;
use crate::model::diff::{Diff, Run};
use crate::views;

/// Compare recordings: what became slower or faster, and which threads and locks caused it
///
/// Matches threads by their function and creation stack, and locks by their name, even if the
/// program was rebuilt. Ranks the differences by their effect on the length of the run.
///
/// Record both sides in the same way. With one recording on each side, a difference counts if
/// it exceeds 15 % and 10 ms. With several, it must exceed 10 % and 10 ms, and the ranges must not
/// overlap. With five or more on each side, only the ranges count.
#[derive(Debug, Args)]
#[command(
    override_usage = "unspool diff [OPTIONS] BEFORE AFTER\n       \
                      unspool diff [OPTIONS] --before FILE... --after FILE...",
    after_help = EXAMPLES
)]
pub(super) struct Cmd {
    /// A recording of the program as it was
    #[arg(
        value_name = "BEFORE",
        requires = "new",
        required_unless_present = "before",
        conflicts_with_all = ["before", "after"]
    )]
    old: Option<PathBuf>,

    /// A recording of the program as it is now
    #[arg(value_name = "AFTER", required_unless_present = "after")]
    new: Option<PathBuf>,

    /// Several recordings of the program as it was (repeatable)
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "after")]
    before: Vec<PathBuf>,

    /// Several recordings of the program as it is now (repeatable)
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "before")]
    after: Vec<PathBuf>,

    /// Output format; docs/reference/report-json.md describes the JSON
    #[arg(long, value_enum, default_value_t = DiffFormat::Text)]
    format: DiffFormat,

    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Exit with code 3 if the program became slower by more than PERCENT [default: 10]
    ///
    /// CONDITION is `regression` or `regression:PERCENT`. It holds if the run or an item of the
    /// critical path takes longer by more than PERCENT, and by more than noise. With one recording
    /// on each side, noise is at least 15 % and 10 ms. So a PERCENT below 15 needs several
    /// recordings, and one below 10 needs five on each side. The length of the run excludes the
    /// delays by the recorder and by other programs. Exit code 4 means that too little was recorded
    /// to judge.
    #[arg(
        long,
        value_name = "CONDITION",
        value_parser = percent,
        allow_negative_numbers = true,
        help_heading = "For scripts"
    )]
    fail_on: Option<f64>,

    #[command(flatten)]
    reading: Reading,
}

const EXAMPLES: &str = "\
Examples:
  unspool diff before.unspool after.unspool
  unspool diff --before old-*.unspool --after new-*.unspool
  unspool diff before.unspool after.unspool --format html -o diff.html
  unspool diff before.unspool after.unspool --fail-on regression:5";

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DiffFormat {
    /// Text for a terminal
    Text,
    /// All facts, for programs
    Json,
    /// One page for a browser, with tables to sort and filter; needs no network
    Html,
}

/// Growth that is a regression unless the command line says otherwise, percent.
const DEFAULT_PERCENT: f64 = 10.0;

/// Parses `regression` or `regression:PERCENT`.
fn percent(text: &str) -> Result<f64, String> {
    let wrong = || "expected regression or regression:PERCENT, such as regression:5".to_owned();
    let percent = match text.strip_prefix("regression") {
        Some("") => return Ok(DEFAULT_PERCENT),
        Some(rest) => rest.strip_prefix(':').ok_or_else(wrong)?,
        None => return Err(wrong()),
    };
    let percent: f64 = percent.trim_end_matches('%').parse().map_err(|_| wrong())?;
    (percent.is_finite() && percent >= 0.0)
        .then_some(percent)
        .ok_or_else(wrong)
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (before, after) = match (&self.old, &self.new) {
            (Some(old), Some(new)) => (std::slice::from_ref(old), std::slice::from_ref(new)),
            _ => (&self.before[..], &self.after[..]),
        };
        let output = terminal::output_file(self.output.as_deref());
        if self.format == DiffFormat::Html && output.is_none() {
            terminal::ensure_page_is_wanted("name a file with -o")?;
        }
        let before = self.runs(before)?;
        let diff = Diff::of(before, self.runs(after)?);
        let mut style = terminal::style_for_stdout();
        style.color &= output.is_none();
        terminal::to_output(output, |out| match self.format {
            DiffFormat::Text => views::text::diff::write(&diff, out, &style),
            DiffFormat::Json => views::json::diff::write(&diff, out),
            DiffFormat::Html => views::html::diff::write(&diff, out),
        })?;
        Ok(self.exit_code(&diff).unwrap_or(ExitCode::SUCCESS))
    }

    /// Reads recordings one after the other, because a model may need much memory.
    fn runs(&self, files: &[PathBuf]) -> anyhow::Result<Vec<Run>> {
        let detail = Detail::JOURNAL;
        let read = |file: &PathBuf| {
            let recording = Recording::open(file, &self.reading, detail)?;
            recording.is_comparable()?;
            Ok(Run::of(&recording.model))
        };
        files.iter().map(read).collect()
    }

    /// The exit code if `--fail-on` applies. Prints the reason on standard error.
    fn exit_code(&self, diff: &Diff) -> Option<ExitCode> {
        let percent = self.fail_on?;
        if !diff.can_judge() {
            terminal::say("failing: too little was recorded to judge");
            return Some(ExitCode::from(fail_on::TOO_LITTLE_SEEN));
        }
        let slower = diff.slower_items(percent).count();
        let reason = match (diff.is_slower(percent), slower) {
            (false, 0) => return None,
            (true, _) => "the run grew".to_owned(),
            (false, 1) => "an item of the critical path grew".to_owned(),
            (false, items) => format!("{items} items of the critical path grew"),
        };
        terminal::say(&format!("failing: {reason} by more than {percent} %"));
        Some(ExitCode::from(fail_on::FOUND))
    }
}
