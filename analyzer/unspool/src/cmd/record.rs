//! `unspool record`: runs, attaches to or connects to a program and records its threads.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use unspool_capture::Capture;

use super::fail_on::FailOn;
use super::interrupt::Interrupts;
use super::output::Output;
use super::prefer::Prefer;
use super::symbols::Symbols;
use super::target::Target;
use super::terminal;
use crate::collect::{self, Ended, Outcome};
use crate::model::{Model, Symbolizer};
use crate::store::Store;
use crate::views;

/// Where `record` writes and `report` reads when no file is named.
pub(super) const DEFAULT_FILE: &str = "capture.unspool";

/// Record where every thread of a program is created, and on request what threads wait for
///
/// Runs PROG, or takes a process that runs already, and notes each thread creation with its
/// stack, each thread's start, join, detach and end. The program's input, output and signals are
/// its own; recording ends with the program, and the report is printed on standard error.
#[derive(Debug, Args)]
#[command(
    override_usage = "unspool record [OPTIONS] -- PROG [ARGS]...\n       \
                      unspool record [OPTIONS] --attach PID\n       \
                      unspool record [OPTIONS] --connect ADDR",
    after_help = NOTES
)]
pub(super) struct Cmd {
    /// File to write the recording to
    ///
    /// An earlier recording of that name is kept as FILE.old. A file that is not a recording is
    /// never overwritten.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    output: PathBuf,

    /// Do not print the report when recording ends
    #[arg(short = 'q', long, visible_alias = "quiet")]
    no_report: bool,

    /// The program to run, searched in PATH as a shell does, and its arguments
    #[arg(
        help_heading = "Which program",
        value_name = "PROG",
        last = true,
        num_args = 1..,
        required_unless_present_any = ["attach", "connect"],
        conflicts_with_all = ["attach", "connect", "exec", "architecture"]
    )]
    program: Vec<OsString>,

    /// Record also what threads wait for: `contended` (if nothing is said) only waiting, `all` every operation
    ///
    /// Of mutexes, read-write locks, condition variables, semaphores, barriers and the like. `contended` costs nothing
    /// while nobody waits: it watches the system calls by which the C library waits. `all` watches every lock and
    /// unlock, within the budget.
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "contended"
    )]
    sync: Option<collect::Sync>,

    /// Record also each call of these functions: when, by whom, with what arguments, how long (may be repeated)
    ///
    /// A name as the symbol table has it, C++ and Rust names without arguments (`Orders::submit`); `*` stands for any
    /// characters, `?` for one. FILE:NAME means those of one file (`libz.so*:inflate*`), which may be called by the link to it that was started. Libraries loaded later are
    /// searched, too. At most 500 functions.
    #[arg(long, value_name = "GLOB")]
    trace: Vec<collect::Pattern>,

    /// How the program's calls are noticed
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    probes: collect::ProbeKinds,

    /// What the recording may cost the program: a share of one processor (5% if not said), or none for no limit
    ///
    /// Over it, the probes that cost most are paused for moments, creations of threads last, and the report says what they missed.
    /// With --connect, the server's own --budget counts.
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with = "connect")]
    budget: Option<String>,

    /// Lose nothing: a program that is faster than what is recorded of it can be read waits
    ///
    /// Otherwise such events are dropped, and counted. The program may become many times slower: there is no budget.
    #[arg(long, conflicts_with_all = ["budget", "connect"])]
    lossless: bool,

    #[command(flatten)]
    target: Target,

    #[command(flatten)]
    fail_on: FailOn,

    #[command(flatten)]
    symbols: Symbols,

    #[command(flatten)]
    prefer: Prefer,
}

const NOTES: &str = "\
Ctrl-C (SIGINT), SIGTERM and SIGHUP end the recording; it is kept and the report printed.
  A program that record started gets SIGINT, unless the terminal has sent it one already, and
  is killed if it still runs 2 seconds later, or at a second Ctrl-C. A program that record
  attached or connected to goes on running without any trace of the recording.

Exit code:
  That of the program, or 128 + N when signal N ended it; 0 when it goes on without us. When the
  recording failed or is not whole (connection lost, disk full, a library's file missing or of
  another build): the program's if that is not 0, else 1. 2: wrong command line. 3: there is a
  finding that --fail-on names, whatever the program's code.

Examples:
  unspool record -- pigz -k big.tar
  unspool record -o server.unspool --attach 1234
  unspool record --sync -- ./server
  unspool record --trace 'parse_*' --trace 'libz.so*:deflate' -- ./server
  qemu-arm -g 1234 -L ~/rootfs ~/rootfs/usr/bin/pigz -k big.tar &
  unspool record --connect :1234 --sysroot ~/rootfs --exec ~/rootfs/usr/bin/pigz";

/// As the server takes it, so that a mistake is told before anything is started.
fn share(text: &str) -> Result<String, String> {
    let percent = text
        .strip_suffix('%')
        .and_then(|digits| digits.parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(text.to_owned()),
        _ if text == "none" => Ok(text.to_owned()),
        _ => Err("expected a share of one processor, such as 5%, or none".to_owned()),
    }
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let store = self.symbols.store()?;
        let source = self.target.source(self.program.clone())?;
        let output = Output::prepare(&self.output)?;
        let interrupts = Interrupts::install().context("cannot take over signals")?;
        let options = collect::Options {
            source,
            store: store.clone(),
            rsp_log: self.target.rsp_log()?,
            architecture: self.target.architecture.clone(),
            probes: self.probes,
            calls: collect::Instrumented {
                sync: self.sync,
                functions: self.trace.clone(),
            },
            budget: match self.lossless {
                true => Some("none".to_owned()),
                false => self.budget.clone(),
            },
            lossless: self.lossless,
            stop: Some(interrupts.requests()?),
            command: std::env::args().collect(),
        };
        let outcome = match collect::record(options, || output.open()) {
            Ok(outcome) => outcome,
            Err(error) => {
                output.discard();
                return Err(error.into());
            }
        };
        let shown = self.report(&output, store);
        let code = exit_code(&outcome);
        let failures = outcome.failure.map(anyhow::Error::from).into_iter().chain(
            shown
                .as_ref()
                .err()
                .map(|error| anyhow::anyhow!("{error:#}")),
        );
        let mut failed = false;
        for error in failures {
            terminal::print_error(&error);
            failed = true;
        }
        if let Ok(Some(found)) = shown {
            return Ok(found);
        }
        Ok(ExitCode::from(if failed && code == 0 { 1 } else { code }))
    }

    /// Prints the report of what was just recorded on standard error; the exit code if `--fail-on` has one.
    fn report(&self, output: &Output, store: Store) -> anyhow::Result<Option<ExitCode>> {
        let quiet = self.no_report;
        if quiet && !self.fail_on.is_asked() || !output.is_readable() {
            return Ok(None);
        }
        let file: &Path = &self.output;
        let capture = Capture::read(file)?;
        let model = Model::build(
            &capture,
            &mut Symbolizer::new(store).preferring(self.prefer.ways()),
        );
        if quiet {
            return Ok(self.fail_on.exit_code(&model));
        }
        let mut out = io::BufWriter::new(io::stderr().lock());
        // Nobody is left to tell when standard error itself fails.
        let _ = views::tree::write(&model, &mut out, &terminal::style_for_stderr());
        let again = if file == Path::new(DEFAULT_FILE) {
            "unspool report".to_owned()
        } else {
            format!("unspool report {}", file.display())
        };
        let _ = writeln!(
            out,
            "\nKept in {}; `{again}` shows it again.",
            file.display()
        );
        let _ = out.flush();
        drop(out);
        Ok(self.fail_on.exit_code(&model))
    }
}

/// The code a shell would see had the program run by itself.
fn exit_code(outcome: &Outcome) -> u8 {
    match outcome.ended {
        // The kernel keeps eight bits of what is passed to exit(2).
        Ended::Exited(code) => (code & 0xff) as u8,
        Ended::Terminated(signal) => 128_u8.saturating_add(signal),
        Ended::Detached => 0,
        Ended::ConnectionLost => 1,
    }
}
