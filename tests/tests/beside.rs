//! Tests `unspool record --connect` and `unspool inspect --connect` beside a real gdb on one stub.
//!
//! Whichever connects first, gdb stops, steps and resumes as usual, the recording is complete, and
//! the program continues when gdb has left.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::process::{self, Background};
use unspool_tests::{report, workspace};

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("gdb_joins_record", gdb_second as fn() -> Result<()>),
        ("record_joins_gdb", gdb_first),
        ("inspect_beside_gdb", inspect),
        ("refused", refused),
        ("calls_need_no_stop", budget),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("beside::{name}"), check))
    .collect()
}

const LIMIT: Duration = Duration::from_secs(60);

/// Creates a thread for each input line.
const PYTHON: &str = "\
import sys, threading
def work(): pass
for line in sys.stdin:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print('made', line.strip(), flush=True)
";

/// A stub with that program.
struct Served {
    stub: Background,
    port: u16,
    input: Option<ChildStdin>,
    output: std::io::Lines<BufReader<ChildStdout>>,
    lines: u32,
}

impl Served {
    fn start() -> Result<Self> {
        Served::with(&[])
    }

    /// With more options.
    fn with(options: &[&str]) -> Result<Self> {
        let mut command = Command::new(workspace::stub()?);
        command.args(options);
        command.args(["127.0.0.1:0", "/usr/bin/python3", "-S", "-c", PYTHON]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut stub = Background(process::start(&mut command)?);
        let mut errors = BufReader::new(stub.0.stderr.take().context("piped")?);
        let port = loop {
            let mut line = String::new();
            ensure!(errors.read_line(&mut line)? > 0, "the stub ended");
            if let Some(port) = line.trim().strip_prefix("Listening on port ") {
                break port.parse()?;
            }
        };
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let input = stub.0.stdin.take();
        let output = BufReader::new(stub.0.stdout.take().context("piped")?).lines();
        Ok(Served {
            stub,
            port,
            input,
            output,
            lines: 0,
        })
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Makes it create one more thread; `made` waits for that.
    fn ask(&mut self) -> Result<()> {
        self.lines += 1;
        let lines = self.lines;
        Ok(writeln!(self.input.as_mut().context("open")?, "{lines}")?)
    }

    fn made(&mut self) -> Result<()> {
        let line = self.output.next().transpose()?.unwrap_or_default();
        ensure!(line.starts_with("made "), "the program says {line:?}");
        Ok(())
    }

    /// Closes the input. The program ends, and the stub ends when its last client has left.
    fn finish(mut self) -> Result<()> {
        drop(self.input.take());
        let mut status = None;
        process::wait_until("the stub ends", LIMIT, || {
            status = self.stub.0.try_wait().ok().flatten();
            status.is_some()
        })?;
        ensure!(status.is_some_and(|status| status.success()), "{status:?}");
        Ok(())
    }
}

/// A gdb that is controlled line by line.
struct Gdb {
    child: Background,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    asked: u32,
}

impl Gdb {
    fn start() -> Result<Self> {
        let mut command = Command::new("gdb");
        command.args(["-nx", "-q", "-x"]);
        command.arg(workspace::file("gdb/settings.gdb"));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = Background(process::start(&mut command)?);
        let input = child.0.stdin.take().context("piped")?;
        let output = BufReader::new(child.0.stdout.take().context("piped")?);
        Ok(Gdb {
            child,
            input,
            output,
            asked: 0,
        })
    }

    /// The output of these commands.
    fn ask(&mut self, commands: &str) -> Result<String> {
        self.asked += 1;
        let mark = format!("answered {}", self.asked);
        writeln!(self.input, "{commands}\necho \\n{mark}\\n")?;
        let mut text = String::new();
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "gdb ended: {text}");
            if line.trim_end().ends_with(&mark) {
                return Ok(text);
            }
            text.push_str(&line);
        }
    }

    /// Like `ask`; the output must contain `expected`.
    fn expect(&mut self, commands: &str, expected: &str) -> Result<()> {
        let text = self.ask(commands)?;
        ensure!(
            text.contains(expected),
            "no {expected:?} after {commands:?}:\n{text}"
        );
        Ok(())
    }
}

/// Starts a recording, and waits until `sign` is in its capture.
fn record(capture: &Path, served: &Served, sign: &str) -> Result<Background> {
    let mut command = report::unspool()?;
    command.args(["record", "-q", "-o"]).arg(capture);
    command.args(["--connect", &served.address()]);
    let child = Background(process::start(&mut command)?);
    process::wait_until("the recording runs", LIMIT, || {
        report::has_note(capture, sign)
    })?;
    Ok(child)
}

/// Checks that the recording is complete: each line created a thread whose stack reaches Python's
/// start.
fn check(capture: &Path, threads: u32) -> Result<()> {
    let report = report::report(capture, &[])?;
    let created: Vec<_> = report.created().collect();
    ensure!(
        created.len() == threads as usize,
        "{} of {threads} creations: {:?}",
        created.len(),
        report.notes
    );
    for thread in created {
        ensure!(thread.creation.len() > 8, "{:?}", thread.creation);
        let outermost = thread.creation.last().context("frames")?;
        ensure!(
            outermost.function.as_deref() == Some("_start"),
            "{outermost:?}"
        );
        ensure!(thread.tid.is_some(), "no thread: {:?}", report.notes);
    }
    Ok(())
}

/// gdb sets breakpoints where the recorder has tracepoints, steps, and detaches.
fn session(gdb: &mut Gdb, served: &mut Served) -> Result<()> {
    gdb.expect("break pthread_create", "Breakpoint")?;
    for _ in 0..3 {
        served.ask()?;
    }
    gdb.expect("continue", "__pthread_create")?;
    gdb.expect("stepi\nstepi\nbt 1", "pthread_create")?;
    gdb.expect("continue", "__pthread_create")?;
    gdb.expect("next\nfinish", "Value returned")?;
    gdb.expect(
        "delete\ntbreak pthread_create\ncontinue",
        "__pthread_create",
    )?;
    gdb.expect("info threads", "Thread")?;
    gdb.expect("detach", "Detaching")?;
    for _ in 0..3 {
        served.made()?;
    }
    Ok(())
}

fn gdb_second() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut served = Served::start()?;
    let mut recording = record(&capture, &served, "")?;
    served.ask()?;
    served.made()?;
    let mut gdb = Gdb::start()?;
    gdb.expect(
        &format!("target remote {}", served.address()),
        "Remote debugging",
    )?;
    process::wait_until("gdb is noticed", LIMIT, || {
        report::has_note(&capture, "another client took control")
    })?;
    session(&mut gdb, &mut served)?;
    // The client connects again and disconnects. A third one resumes the program.
    gdb.expect(
        &format!("target remote {}", served.address()),
        "Remote debugging",
    )?;
    kill(
        Pid::from_raw(gdb.child.0.id().cast_signed()),
        Signal::SIGKILL,
    )?;
    process::wait_until("that is noticed", LIMIT, || {
        report::has_note(&capture, "no client controls it")
    })?;
    let mut gdb = Gdb::start()?;
    gdb.expect(
        &format!("target remote {}", served.address()),
        "Remote debugging",
    )?;
    gdb.expect("detach", "Detaching")?;
    served.ask()?;
    served.made()?;
    drop(served.input.take());
    recording.ends_well("the recording", LIMIT)?;
    served.finish()?;
    check(&capture, 5)
}

fn gdb_first() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut served = Served::start()?;
    let mut gdb = Gdb::start()?;
    // Before the first instruction, no library is loaded.
    gdb.expect(
        &format!("target remote {}", served.address()),
        "Remote debugging",
    )?;
    let mut recording = record(
        &capture,
        &served,
        "another client of the stub, such as gdb, controls the program",
    )?;
    gdb.expect(
        "set breakpoint pending on\ntbreak read\ncontinue",
        "emporary breakpoint 1, ",
    )?;
    session(&mut gdb, &mut served)?;
    served.ask()?;
    served.made()?;
    drop(served.input.take());
    recording.ends_well("the recording", LIMIT)?;
    served.finish()?;
    check(&capture, 4)
}

/// Function calls are recorded without a stop, with or without a budget.
fn budget() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut counts = Vec::new();
    for share in ["5%", "none"] {
        let capture = folder.path().join(share);
        let mut served = Served::with(&["--budget", share])?;
        let mut command = report::unspool()?;
        command
            .args(["record", "-q", "--sync=all", "-o"])
            .arg(&capture);
        command.args(["--connect", &served.address()]);
        let mut recording = Background(process::start(&mut command)?);
        served.ask()?;
        served.made()?;
        drop(served.input.take());
        recording.ends_well("the recording", LIMIT)?;
        served.finish()?;
        let report = report::report(&capture, &[])?;
        let note = report.notes.iter().find_map(|note| {
            let (before, _) = note.as_str()?.split_once(" probes use traps)")?;
            let (_, counts) = before.rsplit_once('(')?;
            let (traps, all) = counts.split_once(" of ")?;
            Some((traps.parse::<u32>().ok()?, all.parse::<u32>().ok()?))
        });
        counts.push(note.with_context(|| format!("{:?}", report.notes))?);
    }
    ensure!(counts[0] == counts[1], "{counts:?}");
    ensure!(20 * counts[0].0 < counts[0].1, "{counts:?}");
    Ok(())
}

fn inspect() -> Result<()> {
    let mut served = Served::start()?;
    let mut gdb = Gdb::start()?;
    gdb.expect(
        &format!("target remote {}", served.address()),
        "Remote debugging",
    )?;
    gdb.expect("set breakpoint pending on\ntbreak pthread_create", "")?;
    served.ask()?;
    gdb.expect("continue", "__pthread_create")?;
    let halted = look(&served)?;
    ensure!(
        halted.contains("pthread_create") && halted.contains("_start"),
        "{halted}"
    );
    // The same while it runs and gdb waits for it.
    writeln!(gdb.input, "continue")?;
    served.made()?;
    let running = look(&served)?;
    ensure!(
        running.contains("read") && running.contains("_start"),
        "{running}"
    );
    served.ask()?;
    served.made()?;
    drop(served.input.take());
    gdb.expect("", "exited normally")?;
    writeln!(gdb.input, "quit")?;
    served.finish()
}

fn look(served: &Served) -> Result<String> {
    let mut command = report::unspool()?;
    command.args(["inspect", "--connect", &served.address()]);
    Ok(process::run(&mut command, LIMIT)?.success()?.text())
}

/// Recording by breakpoints needs control of the target.
fn refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let served = Served::start()?;
    let mut gdb = Gdb::start()?;
    gdb.expect(
        &format!("target remote {}", served.address()),
        "Remote debugging",
    )?;
    let mut command = report::unspool()?;
    command.args(["record", "--probes", "breakpoints", "-q", "-o"]);
    command.arg(folder.path().join("capture"));
    command.args(["--connect", &served.address()]);
    let run = process::run(&mut command, LIMIT)?;
    let said = &run.stderr;
    ensure!(run.code()? != 0, "{run}");
    ensure!(
        said.contains("the program is controlled by the client at 127.0.0.1"),
        "{said}"
    );
    gdb.ask("kill")?;
    Ok(())
}

impl Drop for Gdb {
    fn drop(&mut self) {
        let child: &mut Child = &mut self.child.0;
        let _ = child.kill();
        let _ = child.wait();
    }
}
