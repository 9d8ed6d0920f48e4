//! `unspool inspect`: one look at all threads of a running program.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::fail_on::FailOn;
use super::recording::{Reading, Recording};
use super::report::Format;
use super::target::Target;
use super::terminal;
use crate::collect;
use crate::model::{Model, Symbolizer};
use crate::views;

/// Show what all threads of a running program do and wait for, now: stacks, holders, deadlocks
///
/// The program is stopped for as long as the threads' registers and stacks are read, usually
/// some milliseconds, and then goes on. Nothing is written to a file.
#[derive(Debug, Args)]
#[command(
    override_usage = "unspool inspect [OPTIONS] --attach PID\n       \
                      unspool inspect [OPTIONS] --connect ADDR",
    after_help = EXAMPLES
)]
pub(super) struct Cmd {
    /// What to write: text to read, or JSON for programs (docs/report-json.md)
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    #[command(flatten)]
    target: Target,

    /// A recording of the same process, which tells where the threads were created
    ///
    /// One that has ended while the process went on (`record --attach`), or one that is being written
    /// (`record --connect` beside this).
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,

    /// Columns of the text, if not the terminal's
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..=1000))]
    width: Option<u16>,

    #[command(flatten)]
    fail_on: FailOn,

    #[command(flatten)]
    reading: Reading,
}

const EXAMPLES: &str = "\
Examples:
  unspool inspect --attach 1234
  unspool inspect --attach $(pidof firefox) --format json
  unspool inspect --attach 1234 --fail-on deadlock:proved
  unspool inspect --attach 1234 --recording server.unspool
  unspool inspect --connect board:2345 --sysroot ~/board/rootfs";

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let store = self.reading.symbols.store()?;
        if self.target.attach.is_none() && self.target.connect.is_none() {
            terminal::say("error: which program? name one with --attach PID or --connect ADDR");
            return Ok(ExitCode::from(2));
        }
        let recording = self.recording.as_deref();
        let recording = recording.map(|file| Recording::open(file, &self.reading, None));
        let recording = recording.transpose()?;
        let mut inspection = collect::Inspection::begin(collect::Options {
            source: self.target.source(Vec::new())?,
            store: store.clone(),
            rsp_log: self.target.rsp_log()?,
            architecture: self.target.architecture.clone(),
            calls: Default::default(),
            probes: collect::ProbeKinds::default(),
            budget: None,
            lossless: false,
            stop: None,
            command: std::env::args().collect(),
        })?;
        let mut symbolizer = Symbolizer::new(store).preferring(self.reading.prefer.ways());
        let mut model = Model::build(&inspection.capture(), &mut symbolizer);
        for _ in 0..ROUNDS {
            if !come_closer(&mut inspection, &model) {
                break;
            }
            model.look_closer(&inspection.capture(), &mut symbolizer);
        }
        inspection.finish()?;
        if let Some(recording) = &recording {
            model.learn_from(&recording.model);
        }
        let mut style = terminal::style_for_stdout();
        style.width = self.width.map_or(style.width, usize::from);
        terminal::to_stdout(|out| match self.format {
            Format::Text => views::stacks::write(&model, out, &style),
            Format::Json => views::inspect_json::write(&model, out, &style),
        })?;
        let found = self.fail_on.exit_code(&model);
        // The process ends: nothing is to be tidied up but the server.
        std::mem::forget((model, symbolizer, recording));
        Ok(found.unwrap_or(ExitCode::SUCCESS))
    }
}

/// What one object says may tell where another is; nothing needs more rounds than this.
const ROUNDS: usize = 4;

/// Reads what the model wants to know; whether there was anything.
fn come_closer(inspection: &mut collect::Inspection, model: &Model) -> bool {
    let look = &model.look;
    // Only what would be said to be wrong is worth another stop; if that is that all wait, of all.
    let concerned = model.findings.iter().flat_map(|finding| &finding.threads);
    let concerned: HashSet<u64> = concerned
        .filter_map(|thread| model.thread(*thread)?.tid)
        .collect();
    let all = look.all_wait && !concerned.is_empty();
    let doubtful = look.doubtful.iter().copied();
    let doubtful: Vec<u64> = doubtful
        .filter(|tid| all || concerned.contains(tid))
        .collect();
    if !doubtful.is_empty() {
        inspection.look_again(&doubtful);
        inspection.read(&look.doubtful_words);
    }
    inspection.read(&look.wanted);
    !doubtful.is_empty() || !look.wanted.is_empty()
}
