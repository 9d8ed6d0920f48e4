//! `unspool top`: a terminal view of a running program, refreshed twice a second.

mod terminal_view;
mod watcher;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;

use super::interrupt::Interrupts;
use super::recording::Reading;
use super::target::Target;
use super::terminal;
use crate::collect;
use crate::model::Symbolizer;
use crate::model::live::Live;
use crate::views::top::Screen;
use terminal_view::TerminalView;
use watcher::Watcher;

/// Follow a running program in the terminal: what its threads do, what they wait for, who holds it
///
/// Shows how much of the time threads run, are runnable and are blocked. Threads with the same
/// function and name share a row. Also shows the objects that threads wait for, their holders, and
/// findings such as deadlocks. Processor times come from the kernel's counters twice a second,
/// without stopping the program. Inspections stop it for a few milliseconds each, and for at most
/// 1.5 % of its time in total. Press ? for the keys.
#[derive(Debug, Args)]
#[command(
    override_usage = "unspool top [OPTIONS] {--attach PID | --attach-name GLOB}\n       \
                      unspool top [OPTIONS] --connect ADDR [--attach PID]\n       \
                      unspool top [OPTIONS] [--] PROG [ARGS]...",
    after_help = NOTES
)]
pub(super) struct Cmd {
    /// The program to run, searched in PATH as a shell does, and its arguments
    ///
    /// PROG gets no input, and runs in its own process group. `q` leaves it running.
    #[arg(
        help_heading = "Which program",
        value_name = "PROG",
        trailing_var_arg = true,
        num_args = 1..,
        conflicts_with_all = ["attach", "attach_name", "connect"]
    )]
    program: Vec<OsString>,

    /// File for the output of PROG; without it, the output is discarded
    #[arg(short, long, value_name = "FILE", requires = "program")]
    output: Option<PathBuf>,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    reading: Reading,
}

const NOTES: &str = "\
Leaving:
  q, Ctrl-C and SIGTERM leave the program running, even a PROG that top has started.

Examples:
  unspool top --attach 1234
  unspool top --attach-name redis-server
  unspool top ./server -v
  unspool top --connect board:2345 --sysroot ~/board/rootfs   # unspool-stub on the board";

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let store = self.reading.symbols.store()?;
        if self.program.is_empty() && !self.target.is_named() {
            terminal::say(
                "error: you have not named a program; use --attach PID, --attach-name GLOB or --connect \
                 ADDR, or write a program after --",
            );
            return Ok(ExitCode::from(2));
        }
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            anyhow::bail!("top needs a terminal; use `unspool inspect` for a snapshot as text");
        }
        let child = self.launch()?;
        let launched = child.as_ref().map(Child::id);
        let local = match self.target.connect {
            Some(_) => None,
            None if launched.is_some() => launched,
            None => self.target.process()?,
        };
        let interrupts = Interrupts::install().context("cannot install the signal handlers")?;
        let store = match local {
            Some(pid) => store.of_process(pid),
            None => store,
        };
        let ways = self.reading.prefer.ways();
        let files = store.clone();
        let symbolizer = move |store| Symbolizer::new(store).preferring(ways.clone());
        let target = self.target;
        let mut log = target.rsp_log()?;
        let processors = match local {
            Some(_) => std::thread::available_parallelism().ok().map(usize::from),
            None => None,
        };
        let log = std::sync::Mutex::new(log.take());
        let options = move || {
            let source = match local {
                Some(pid) => collect::Source::Attach { pid },
                None => target.source(Vec::new())?,
            };
            // Later inspections of a local program have sessions of their own.
            let log = log.lock().ok().and_then(|mut log| log.take());
            Ok(target.inspection(source, store.at_hand(), log))
        };
        let begun = Watcher::begin(Box::new(options), files, Arc::new(symbolizer), local, child);
        let (watcher, model, stopped) = begun?;
        let mut live = Live::default();
        live.inspected(model);
        let mut screen = Screen::new(terminal::style_for_stdout().color);
        screen.status.stopped = stopped;
        screen.status.processors = processors;
        let view = TerminalView::new(live, screen, interrupts.requests()?);
        let ended = view.run(watcher)?;
        if let Some(pid) = launched.filter(|_| !ended) {
            terminal::say(&format!("process {pid} still runs"));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Starts the program, if one is named.
    fn launch(&self) -> anyhow::Result<Option<Child>> {
        let [program, args @ ..] = &self.program[..] else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        // Keys and signals of the terminal are not for the program.
        command.args(args).stdin(Stdio::null()).process_group(0);
        match &self.output {
            Some(path) => {
                let file = File::create(path)
                    .with_context(|| format!("cannot write the output {}", path.display()))?;
                command.stderr(file.try_clone()?).stdout(file);
            }
            None => {
                command.stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Some(child))
    }
}
