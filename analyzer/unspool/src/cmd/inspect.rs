//! `unspool inspect`: a snapshot of all threads of a running program.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::across::{self, calls};
use super::end_analysis::model_of;
use super::fail_on::FailOn;
use super::number;
use super::recording::{Reading, Recording};
use super::report::Format;
use super::target::{self, Target};
use super::terminal;
use crate::collect::{self, LocalProcess, Options, PipeUsers, Source};
use crate::model::{Detail, Model, Symbolizer};
use crate::store::Store;
use crate::views;

/// Show what all threads of running programs do and wait for now: stacks, owners, deadlocks
///
/// Stops each program while its threads' registers and stacks are read, usually for some
/// milliseconds. Also inspects processes of this machine for which a thread waits: the holder of a
/// lock, a child, and the process at the other end of a pipe. If a thread waits at a pipe, or for
/// any of several children, the other process is inspected only if all its threads wait. Writes no
/// file.
#[derive(Debug, Args)]
#[command(
    override_usage = "unspool inspect [OPTIONS] PID...\n       \
                      unspool inspect [OPTIONS] --attach-name GLOB\n       \
                      unspool inspect [OPTIONS] --connect ADDR [--attach PID]",
    after_help = EXAMPLES
)]
pub(super) struct Cmd {
    /// Output format; docs/reference/report-json.md describes the JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// The running processes to inspect, as with --attach
    #[arg(
        help_heading = "Which program",
        value_name = "PID",
        value_delimiter = ',',
        value_parser = target::pid,
        conflicts_with_all = ["attach", "attach_name", "connect"]
    )]
    processes: Vec<u32>,

    #[command(flatten)]
    target: Target,

    /// Inspect only the named processes, and no other processes for which their threads wait
    #[arg(long)]
    no_follow: bool,

    /// Recording of the same process, to show where its threads were created
    ///
    /// With `record --attach`, the recording must have ended. With `record --connect`, it may go
    /// on.
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,

    /// Width of the text in columns [default: the terminal's]
    #[arg(long, value_name = "COLUMNS", value_parser = number::whole(40_u16..=1000), allow_negative_numbers = true)]
    width: Option<u16>,

    #[command(flatten)]
    fail_on: FailOn,

    #[command(flatten)]
    reading: Reading,
}

const EXAMPLES: &str = "\
Examples:
  unspool inspect 1234
  unspool inspect $(pidof firefox) --format json
  unspool inspect 1234 1240                              # both, and deadlocks between them
  unspool inspect --attach-name 'postgres*'
  unspool inspect 1234 --fail-on deadlock:proved
  unspool inspect 1234 --recording server.unspool
  unspool inspect --connect board:2345 --sysroot ~/board/rootfs
  unspool inspect --connect board:2345 --attach 812      # unspool-stub --multi on the board";

impl Cmd {
    pub(super) fn run(mut self) -> anyhow::Result<ExitCode> {
        self.target.attach.append(&mut self.processes);
        self.fail_on.check_inspection()?;
        let store = self.reading.symbols.store()?;
        if !self.target.is_named() {
            terminal::say(
                "error: you have not named a process; give its PID, or use --attach-name GLOB or --connect ADDR",
            );
            return Ok(ExitCode::from(2));
        }
        let recording = self.recording.as_deref();
        let recording =
            recording.map(|file| Recording::open(file, &self.reading, Detail::default()));
        let recording = recording.transpose()?;
        let target = &self.target;
        let mut log = target.rsp_log()?;
        let mut model = match target.connect {
            Some(_) => {
                let source = target.source(Vec::new())?;
                self.model(
                    target.inspection(source, store.at_hand(), log),
                    &store,
                    None,
                )?
            }
            None => {
                let inspect = |pid, process: &LocalProcess, is_named: bool| {
                    let source = Source::Attach { pid };
                    let store = store.of_process(pid);
                    let mut options = target.inspection(source, store.at_hand(), log.take());
                    options.exec = options.exec.filter(|_| is_named);
                    self.model(options, &store, Some(process))
                };
                across::inspect_all(&target.processes()?, !self.no_follow, inspect)?
            }
        };
        if let Some(recording) = &recording {
            model.learn_from(&recording.model);
        }
        let mut style = terminal::style_for_stdout();
        style.width = self.width.map_or(style.width, usize::from);
        terminal::to_stdout(|out| match self.format {
            Format::Text => views::text::inspection::write(&model, out, &style),
            Format::Json => views::json::inspection::write(&model, out, &style),
        })?;
        let found = self.fail_on.exit_code(&model);
        // The process ends now, and only the server needs a cleanup.
        std::mem::forget((model, recording));
        Ok(found.unwrap_or(ExitCode::SUCCESS))
    }

    /// Inspects a process; `local` if it runs on this machine.
    fn model(
        &self,
        options: Options,
        store: &Store,
        local: Option<&LocalProcess>,
    ) -> anyhow::Result<Model> {
        let symbolizer = |store| Symbolizer::new(store).preferring(self.reading.prefer.ways());
        let mut names = symbolizer(options.store.clone());
        let mut inspection = collect::Inspection::begin(options)?;
        let mut model = model_of(&mut inspection, &mut names);
        if let Some(process) = local {
            calls::name(model.call_subjects(), process, &PipeUsers::default());
        }
        let downloads = store.downloads().then(|| inspection.capture());
        inspection.finish()?;
        // Downloads take long, so the program no longer waits.
        if let Some(capture) = downloads {
            names = symbolizer(store.clone());
            let mut earlier = std::mem::replace(&mut model, Model::build(&capture, &mut names));
            model.take_call_subjects(&mut earlier);
        }
        // The process ends soon, and only the server needs a cleanup.
        std::mem::forget(names);
        Ok(model)
    }
}
