//! `unspool inspect`: one look at all threads of a running program.

use std::process::ExitCode;

use clap::Args;
use unspool_capture::Capture;
use unspool_unwind::Cache;

use super::prefer::Prefer;
use super::report::Format;
use super::symbols::Symbols;
use super::target::Target;
use super::terminal;
use crate::collect;
use crate::model::{Model, Symbolizer};
use crate::views;

/// Show all threads of a running program and their stacks, now
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

    #[command(flatten)]
    symbols: Symbols,

    #[command(flatten)]
    prefer: Prefer,
}

const EXAMPLES: &str = "\
Examples:
  unspool inspect --attach 1234
  unspool inspect --attach $(pidof firefox) --format json
  unspool inspect --connect board:2345 --sysroot ~/board/rootfs";

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let finder = self.symbols.finder()?;
        if self.target.attach.is_none() && self.target.connect.is_none() {
            terminal::say("error: which program? name one with --attach PID or --connect ADDR");
            return Ok(ExitCode::from(2));
        }
        let records = collect::inspect(collect::Options {
            source: self.target.source(Vec::new())?,
            finder: finder.clone(),
            cache: Cache::of_user(),
            rsp_log: self.target.rsp_log()?,
            architecture: self.target.architecture.clone(),
            probes: collect::ProbeKinds::default(),
            budget: None,
            stop: None,
            command: std::env::args().collect(),
        })?;
        let model = Model::build(
            &Capture::from_records(records),
            &mut Symbolizer::new(finder)
                .preferring(self.prefer.ways())
                .caching(Cache::of_user()),
        );
        terminal::to_stdout(|out| match self.format {
            Format::Text => views::stacks::write(&model, out, &terminal::style_for_stdout()),
            Format::Json => views::inspect_json::write(&model, out, &terminal::style_for_stdout()),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
