//! `unspool record`: runs, attaches to or connects to a program and records its threads.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use unspool_capture::Capture;

use super::end_analysis::EndAnalysis;
use super::export;
use super::fail_on::FailOn;
use super::interrupt::Interrupts;
use super::number;
use super::output::Output;
use super::page;
use super::prefer::Prefer;
use super::symbols::Symbols;
use super::target::Target;
use super::terminal;
use crate::collect::{self, Ended, Outcome, Source};
use crate::model::{Detail, Model, Symbolizer};
use crate::store::Store;
use crate::views;
use crate::views::graph::Graph;

/// Default file that `record` writes and `report` reads.
pub(super) const DEFAULT_FILE: &str = "capture.unspool";

/// The words that name a recording in a command of a shell, with a space before them. Empty for the
/// default file.
pub(super) fn named(file: &Path) -> String {
    let text = file.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match &*text {
        DEFAULT_FILE => String::new(),
        text if text.chars().all(plain) => format!(" {text}"),
        text => format!(" '{}'", text.replace('\'', r"'\''")),
    }
}

/// Record where every thread of a program is created, and what threads wait for
///
/// Runs PROG, attaches to processes, or connects to a debug server. Records each thread's creation
/// with its stack, and its start, join, detach and end. The program keeps its input, output and
/// signals. Recording ends with the program; the report goes to standard error.
#[derive(Debug, Args)]
#[command(
    override_usage = "unspool record [OPTIONS] [--] PROG [ARGS]...\n       \
                      unspool record [OPTIONS] {--attach PID[,PID]... | --attach-name GLOB}\n       \
                      unspool record [OPTIONS] --connect ADDR [--attach PID | [--] PROG [ARGS]...]",
    after_help = NOTES
)]
pub(super) struct Cmd {
    /// File to write the recording to
    ///
    /// An earlier recording with this name becomes FILE.old. If FILE is neither empty nor a
    /// recording, `record` refuses it.
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    output: PathBuf,

    /// Also write the report as an HTML page when recording ends
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Also export the recording when it ends (repeatable)
    ///
    /// `unspool export --help` lists the formats. Graphs show threads, or calls with --calls.
    /// Folded stacks show waits.
    #[arg(long, value_name = "FORMAT:FILE")]
    export: Vec<export::Request>,

    /// Do not print the report when recording ends
    #[arg(short = 'q', long, visible_alias = "quiet")]
    no_report: bool,

    /// The program to run, searched in PATH as a shell does, and its arguments
    ///
    /// With --connect the server runs it, on its machine (unspool-stub --multi, gdbserver --multi).
    #[arg(
        help_heading = "Which program",
        value_name = "PROG",
        trailing_var_arg = true,
        num_args = 1..,
        required_unless_present_any = ["attach", "attach_name", "connect"],
        conflicts_with_all = ["attach", "attach_name"]
    )]
    program: Vec<OsString>,

    /// Also record what threads wait for: mutexes, conditions, semaphores, joins and so on
    ///
    /// `--sync` alone means `--sync=contended`.
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "contended"
    )]
    sync: Option<collect::Sync>,

    /// Also sample where threads spend processor time, HZ times per second [default: 199]
    ///
    /// The kernel of the target takes the samples and stops no thread. If it refuses, a timer stops
    /// the running threads to sample them. `unspool report --view profile` shows the samples. HZ is
    /// 10000 at most.
    #[arg(
        long,
        value_name = "HZ",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "199",
        value_parser = number::whole(1_u32..=10_000)
    )]
    cpu: Option<u32>,

    /// Maximum number of stack bytes that each CPU sample copies
    ///
    /// More bytes cost more time. The profile says how many samples needed more.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 61_440,
        requires = "cpu",
        value_parser = number::whole(512_u32..=61_440),
        allow_negative_numbers = true
    )]
    cpu_stack: u32,

    /// Also record each call of these functions: thread, time, arguments, duration (repeatable)
    ///
    /// GLOB is a name from the symbol table; leave out the arguments of C++ and Rust functions
    /// (`Orders::submit`). `*` stands for any characters, `?` for one. FILE:NAME selects functions
    /// of one file (`libz.so*:inflate*`). Libraries that are loaded later are searched, too. At
    /// most 500 functions can be traced.
    #[arg(long, value_name = "GLOB")]
    trace: Vec<collect::Pattern>,

    /// Also record all calls of functions compiled with -finstrument-functions
    ///
    /// `unspool export --graph calls` draws the graph. If no function was compiled with
    /// -finstrument-functions, the graph shows the functions that --trace names.
    #[arg(long)]
    calls: bool,

    /// Do not record the processes that the program starts
    ///
    /// Without this option, Unspool records for each of their threads, if the kernel permits: when
    /// it runs, the system calls that block it, what wakes it, the locks for which it waits, and
    /// where it was created. `--sync` adds nothing about the locks of these processes.
    #[arg(long)]
    no_follow: bool,

    /// End the recording after this time, as Ctrl-C does
    #[arg(long, value_name = "SECONDS", value_parser = duration, allow_negative_numbers = true)]
    duration: Option<Duration>,

    /// How calls are recorded
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    probes: collect::ProbeKinds,

    /// Share of one processor that recording may use, or `none` to lose no event
    ///
    /// The default is 5%. For a program on this machine it is 20% with `--sync`, 30% with
    /// `--sync=all` or `--trace`, and `none` with `--calls`. When the limit is reached, the most
    /// expensive probes pause, and the report says how many calls they missed. Creations, ends and
    /// names of the program's threads are always recorded. Each of several processes has a budget
    /// of its own. With `none` the program waits for the recorder, and can become many times
    /// slower. An unspool-stub that was started with a smaller --budget refuses a larger one.
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    budget: Option<String>,

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
Ending a recording:
  Ctrl-C (SIGINT), SIGTERM, SIGHUP and --duration end the recording and print the report. A
  program that was started for the recording gets SIGINT, too, and so do its child processes in
  its process group. The program is killed if it still runs 2 seconds later, or at a second Ctrl-C.
  Any other program continues.

Exit code:
  The program's own, or 128 + N if signal N ended it. 0 if the program still runs. Of several
  processes, the first code that is not 0.
  1: the recording failed or is incomplete, and the program's own code is 0.
  2: the command line is wrong.
  3: there is a finding that --fail-on names.
  4: there is no such finding, but most calls were missed, so there may be one.

Examples:
  unspool record pigz -k big.tar
  unspool record -o server.unspool --attach 1234 --duration 10
  unspool record --sync --attach 1234,1240               # both, in one recording
  unspool record --sync ./server
  unspool record --sync --export perfetto:trace.pftrace ./server
  unspool record --calls --export svg:calls.svg ./instrumented
  unspool record --trace 'parse_*' --trace 'libz.so*:deflate' ./server
  qemu-arm -g 1234 -L ~/rootfs ~/rootfs/usr/bin/pigz -k big.tar &
  unspool record --connect :1234 --sysroot ~/rootfs --exec ~/rootfs/usr/bin/pigz
  unspool record --connect board:2345 ./server -v        # unspool-stub --multi on the board";

/// The default budget of `--sync` on this machine.
const WAITS_BUDGET: &str = "20%";

/// The default budget of `--sync=all` and `--trace` on this machine. A program with one busy thread
/// is then at most 1.5 times as slow.
const CALLS_BUDGET: &str = "30%";

/// Checks the budget like the server, to report a mistake before anything starts.
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

/// Parses seconds: `10`, `0.5` or `2s`.
pub(super) fn parse_seconds(text: &str) -> Option<Duration> {
    let seconds = text.trim_end_matches('s').parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A positive number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    parse_seconds(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "expected more than 0 seconds, such as 10 or 0.5".to_owned())
}

impl Cmd {
    /// The budget for the server; `None` stands for the server's own default.
    ///
    /// Recording all waits seldom costs much, and a recording that misses some of them answers
    /// little. A board has its own limit.
    fn budget(&self, source: &Source) -> Option<String> {
        let is_local = !matches!(source, Source::Connect { .. });
        let of_calls = self.sync == Some(collect::Sync::All) || !self.trace.is_empty();
        match &self.budget {
            Some(budget) => Some(budget.clone()),
            // A call graph with missing calls has wrong edges.
            None if is_local && self.calls => Some("none".to_owned()),
            None if is_local && of_calls => Some(CALLS_BUDGET.to_owned()),
            None if is_local && self.sync.is_some() => Some(WAITS_BUDGET.to_owned()),
            None => None,
        }
    }

    /// The graph that exports draw.
    fn graph(&self) -> Graph {
        match self.calls {
            true => Graph::Calls,
            false => Graph::default(),
        }
    }

    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        self.fail_on.check(self.sync)?;
        let store = self.symbols.store()?;
        let several = self.target.several()?;
        let source = match &several {
            Some(_) => None,
            None => Some(self.target.source(self.program.clone())?),
        };
        let seen_by = |source: &Source| match source {
            Source::Attach { pid } => store.of_process(*pid),
            _ => store.clone(),
        };
        let output = Output::prepare(&self.output)?;
        if let Some(path) = &self.html {
            page::prepare(path)?;
        }
        for request in &self.export {
            request.prepare(&self.output, self.graph())?;
        }
        let interrupts = Interrupts::install().context("cannot install the signal handlers")?;
        let log = Mutex::new(self.target.rsp_log()?);
        let together = several.clone().unwrap_or_default();
        let options = |source: Source, stop: OwnedFd| {
            let ways = self.prefer.ways();
            let is_local = !matches!(source, Source::Connect { .. });
            let files = store.clone();
            let symbolizer = move |pid| {
                let files = match is_local {
                    true => files.of_process(pid),
                    false => files.clone(),
                };
                Symbolizer::new(files.at_hand()).preferring(ways.clone())
            };
            collect::Options {
                exec: self.target.exec.clone(),
                store: seen_by(&source).at_hand(),
                // Of several processes, the first one.
                rsp_log: log.lock().ok().and_then(|mut log| log.take()),
                architecture: self.target.architecture.clone(),
                probes: self.probes,
                calls: collect::Instrumented {
                    sync: self.sync,
                    functions: self.trace.clone(),
                    hooks: self.calls,
                },
                kernel: collect::KernelRecords {
                    cpu: self.cpu.map(|hz| collect::CpuSamples {
                        hz,
                        stack: self.cpu_stack,
                    }),
                    processes: !self.no_follow,
                },
                budget: self.budget(&source),
                analysis: Some(Box::new(EndAnalysis::new(symbolizer, together.clone()))),
                source,
                stop: Some(stop),
                command: std::env::args().collect(),
            }
        };
        if !matches!(source, Some(Source::Connect { .. })) {
            unspool_stub::prepare_schedule();
        }
        // Of several processes, the first one.
        let first = several.iter().flatten().next();
        let shown_files = match (&source, first) {
            (Some(source), _) => seen_by(source),
            (None, Some(pid)) => store.of_process(*pid),
            (None, None) => store.clone(),
        };
        let requests = interrupts.requests()?;
        let open = || {
            if let Some(time) = self.duration {
                interrupts.request_after(time)?;
            }
            output.open()
        };
        let recorded = match (source, &several) {
            (Some(source), _) => {
                collect::record(options(source, requests), open).map(|outcome| vec![outcome])
            }
            (None, pids) => {
                let pids = pids.as_deref().unwrap_or_default();
                let options = |pid, stop| options(Source::Attach { pid }, stop);
                collect::record_several(pids, options, &requests, open)
            }
        };
        let outcomes = match recorded {
            Ok(outcomes) => outcomes,
            Err(error) => {
                output.discard();
                return Err(error.into());
            }
        };
        interrupts.end_downloads()?;
        let shown = self.report(&output, shown_files);
        let shown = shown.unwrap_or_else(|error| Shown {
            answer: None,
            failures: vec![error],
        });
        // The report has them as notes.
        let unmatched = outcomes.iter().flat_map(|outcome| &outcome.unmatched);
        for warning in unmatched.filter(|_| self.no_report) {
            terminal::say(&format!("warning: {warning}"));
        }
        let mut codes = outcomes.iter().map(exit_code);
        let code = codes.find(|code| *code != 0).unwrap_or(0);
        let failures = outcomes.into_iter().filter_map(|outcome| outcome.failure);
        let mut failed = false;
        for error in failures.map(anyhow::Error::from).chain(shown.failures) {
            terminal::print_error(&error);
            failed = true;
        }
        if let Some(answer) = shown.answer {
            return Ok(answer);
        }
        Ok(ExitCode::from(if failed && code == 0 { 1 } else { code }))
    }

    /// Completes the recording, and prints its report on standard error.
    fn report(&self, output: &Output, store: Store) -> anyhow::Result<Shown> {
        if !output.is_readable() {
            return Ok(Shown::default());
        }
        let file: &Path = &self.output;
        let capture = Capture::read(file)?;
        let details = self.export.iter().map(export::Request::detail);
        let mut detail = Detail {
            journal: self.html.is_some(),
            call_graph: self.calls,
            ..Detail::default()
        };
        for needed in details {
            detail.journal |= needed.journal;
            detail.hits |= needed.hits;
        }
        let mut kept = Ok(());
        let mut model_of = |process: u32, capture: &Capture| {
            let mut symbolizer = Symbolizer::new(store.clone()).preferring(self.prefer.ways());
            let mut model = Model::build_for(capture, &mut symbolizer, detail);
            model.recording.file = named(file);
            // Store the names found in files with the recording, because the files may be gone
            // later. Readers ignore everything behind a cut.
            if capture.cut.is_none() && kept.is_ok() {
                kept = output.append(process, symbolizer.resolution());
            }
            model
        };
        let first = model_of(0, &capture);
        let mut further = Vec::new();
        for process in &capture.further {
            further.push(model_of(*process, &Capture::read_process(file, *process)?));
        }
        let mut model = Model::together(first, further);
        let kept = kept.context("the recording does not keep the names of its stacks");
        // A file that cannot be written costs neither the report nor the answer of --fail-on.
        let mut failures: Vec<anyhow::Error> = kept.err().into_iter().collect();
        failures.extend(self.write_files(&model));
        let answer = self.fail_on.exit_code(&model);
        let shown = Shown { answer, failures };
        if self.no_report {
            return Ok(shown);
        }
        let mut out = io::BufWriter::new(io::stderr().lock());
        model.merge_notes();
        // If standard error itself fails, there is no place to report it.
        let _ = views::text::each(
            &model,
            &mut out,
            &terminal::style_for_stderr(),
            &mut views::text::tree::write,
        );
        let _ = writeln!(
            out,
            "\nKept in {}; `unspool report{}` shows it again.",
            file.display(),
            model.recording.file
        );
        let _ = out.flush();
        Ok(shown)
    }

    /// Writes the page and the exports. Returns an error for each file that cannot be written.
    fn write_files(&self, model: &Model) -> Vec<anyhow::Error> {
        let page = self.html.iter();
        let page = page.map(|path| page::write_file(model, page::sources(model), path));
        let exports = self.export.iter();
        let exports = exports.map(|request| request.write(model, self.graph()));
        page.chain(exports).filter_map(Result::err).collect()
    }
}

/// The end of a recording's report.
#[derive(Debug, Default)]
struct Shown {
    /// The exit code that `--fail-on` requires, if any.
    answer: Option<ExitCode>,
    /// The errors of the files that could not be written.
    failures: Vec<anyhow::Error>,
}

/// The exit code that a shell would see without the recorder.
fn exit_code(outcome: &Outcome) -> u8 {
    match outcome.ended {
        // The kernel keeps eight bits of the value passed to exit(2).
        Ended::Exited(code) => (code & 0xff) as u8,
        Ended::Terminated(signal) => 128_u8.saturating_add(signal),
        Ended::Detached => 0,
        Ended::ConnectionLost => 1,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        record: Cmd,
    }

    #[test]
    fn a_file_that_cannot_be_written_does_not_stop_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let exports = ["none/a.dot", "b.dot", "none/c.dot"].map(|name| format!("dot:{}", at(name)));
        let [first, second, third] = &exports;
        let command = Command::try_parse_from([
            "record",
            "--html",
            &at("none/page.html"),
            "--export",
            first,
            "--export",
            second,
            "--export",
            third,
            "true",
        ]);
        let mut stage = crate::model::fixture::Stage::new();
        stage.end(10);
        let failures = command.unwrap().record.write_files(&stage.model());
        assert_eq!(failures.len(), 3, "{failures:?}");
        assert!(folder.path().join("b.dot").exists());
    }
}
