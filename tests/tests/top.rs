//! `unspool top` in a real pseudo terminal, whose screen a VT parser reads.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::{Pid, ttyname};
use tempfile::TempDir;
use vt100::Parser;

use unspool_tests::process::{self, Background};
use unspool_tests::{report, waiting, workspace};

use crate::inspect::serve;

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("attach", attach as fn() -> Result<()>),
        ("narrow", narrow),
        ("launch", launch),
        ("stub", stub),
        ("gdbserver", gdbserver),
        ("signals", signals),
        ("errors", errors),
        ("short-waits", short_waits),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("top::{name}"), check))
    .collect()
}

/// `programs/top.c`, running.
struct Pool {
    child: Background,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    _folder: TempDir,
}

impl Pool {
    fn start() -> Result<Pool> {
        let (folder, program) = compile()?;
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Background(process::start(&mut command)?);
        let input = child.0.stdin.take().context("piped")?;
        let mut lines = BufReader::new(child.0.stdout.take().context("piped")?).lines();
        ensure!(lines.next().transpose()?.as_deref() == Some("ready"));
        Ok(Pool {
            child,
            input,
            lines,
            _folder: folder,
        })
    }

    fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Whether a debugger or a stub is attached.
    fn is_traced(&self) -> Result<bool> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        Ok(!status.contains("TracerPid:\t0\n"))
    }

    /// Tells the program to end.
    fn release(&mut self) -> Result<()> {
        writeln!(self.input, "end")?;
        let line = self.lines.next().transpose()?;
        ensure!(line.as_deref() == Some("done"), "the program says {line:?}");
        Ok(())
    }

    /// The program runs, and ends as without `top`.
    fn ends_unharmed(mut self) -> Result<()> {
        process::wait_until("nothing is attached", LIMIT, || {
            self.is_traced().is_ok_and(|traced| !traced)
        })?;
        ensure!(self.child.0.try_wait()?.is_none(), "it has ended");
        self.release()?;
        let status = self.child.0.wait()?;
        ensure!(status.code() == Some(7), "it ended with {status}");
        Ok(())
    }
}

fn compile() -> Result<(TempDir, PathBuf)> {
    waiting::compile_in(".", "top.c", &["gcc", "-O1", "-g", "-pthread"])
}

/// A number of rows or columns for the parser.
fn cells(count: u16) -> Result<NonZero<u16>> {
    NonZero::new(count).context("an empty screen")
}

/// `unspool top` in a pseudo terminal.
struct Terminal {
    unspool: Background,
    master: File,
    slave: OwnedFd,
    before: Termios,
    parser: Arc<Mutex<Parser>>,
}

impl Terminal {
    fn start(arguments: &[&str], columns: u16, rows: u16) -> Result<Terminal> {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None)?;
        let before = tcgetattr(&pty.slave)?;
        let mut command = report::unspool()?;
        command.arg("top").args(arguments).env("TERM", "xterm");
        command.stdin(pty.slave.try_clone()?);
        command.stdout(pty.slave.try_clone()?);
        command.stderr(pty.slave.try_clone()?);
        let unspool = Background(process::start(&mut command)?);
        let parser = Arc::new(Mutex::new(Parser::new(cells(rows)?, cells(columns)?, 0)));
        let (mut output, screen) = (File::from(pty.master.try_clone()?), parser.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = output.read(&mut bytes) {
                let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
                screen.process(&bytes[..count]);
            }
        });
        Ok(Terminal {
            unspool,
            master: File::from(pty.master),
            slave: pty.slave,
            before,
            parser,
        })
    }

    fn text(&self) -> String {
        let parser = self.parser.lock().unwrap_or_else(PoisonError::into_inner);
        parser.screen().contents()
    }

    fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// Waits until a line of the screen contains all these words. Returns the screen.
    fn shows(&self, words: &[&str]) -> Result<String> {
        let is_there = |text: &str| {
            let mut lines = text.lines();
            lines.any(|line| words.iter().all(|word| line.contains(word)))
        };
        process::wait_until(&format!("{words:?}"), LIMIT, || is_there(&self.text()))
            .with_context(|| format!("the screen:\n{}", self.text()))?;
        Ok(self.text())
    }

    /// Waits until no line of the screen contains this.
    fn hides(&self, word: &str) -> Result<()> {
        process::wait_until(&format!("no {word}"), LIMIT, || !self.text().contains(word))
            .with_context(|| format!("the screen:\n{}", self.text()))
    }

    /// The process ends well, and the terminal is as before. Returns the rest of the output.
    fn ends_well(mut self) -> Result<String> {
        self.unspool.ends_well("unspool top", LIMIT)?;
        self.is_restored()
    }

    fn is_restored(&self) -> Result<String> {
        process::wait_until("the first screen", LIMIT, || {
            let parser = self.parser.lock().unwrap_or_else(PoisonError::into_inner);
            !parser.screen().alternate_screen() && !parser.screen().hide_cursor()
        })?;
        let now = tcgetattr(&self.slave)?;
        let flags = |of: &Termios| (of.input_flags, of.output_flags, of.local_flags);
        ensure!(flags(&now) == flags(&self.before), "{now:?}");
        Ok(self.text())
    }
}

/// Identities, states, waits with their holder, the stack, sort and filter; and `q` leaves the
/// program unharmed.
fn attach() -> Result<()> {
    let mut pool = Pool::start()?;
    let pid = pool.pid().to_string();
    let mut top = Terminal::start(&["--attach", &pid], 100, 30)?;
    top.shows(&["(pid", &pid, "6 threads", "CPUs"])?;
    top.shows(&["  3  serve \"pool-…\"", "  0%   0% 100%", "held by"])?;
    // The thread that always runs is first, and has no time to wait.
    let screen = top.shows(&["  1  compute", "running"])?;
    let at = |name: &str| screen.find(name).unwrap_or(usize::MAX);
    ensure!(at("  1  compute") < at("  3  serve"), "{screen}");
    // The escape sequence in the name of a thread is harmless.
    top.shows(&["  3  ", "mutex settings, held by", "[31m)"])?;
    top.press("/pool\r")?;
    top.hides("compute")?;
    top.shows(&["filter: pool"])?;
    top.press("\r")?;
    top.shows(&["Threads of serve \"pool-…\""])?;
    top.shows(&["pool-2", "mutex settings"])?;
    top.press("j\r")?;
    top.shows(&["Stack of thread", "(pool-2)"])?;
    top.shows(&["It has not run for"])?;
    top.shows(&["serve", "top.c:28"])?;
    // Back to all identities, and the next orders.
    top.press("\x7f")?;
    top.shows(&["pool-3"])?;
    top.press("\x7f/\x7f\x7f\x7f\x7f\r")?;
    top.shows(&["  1  main", "in read()"])?;
    for order in ["runnable", "blocked", "threads", "name"] {
        top.press("s")?;
        top.shows(&[&format!("sort: {order}")])?;
    }
    let screen = top.text();
    let at = |name: &str| screen.find(name).unwrap_or(usize::MAX);
    ensure!(at("  1  compute") < at("  1  main"), "{screen}");
    top.press("?")?;
    top.shows(&["RDY", "runnable"])?;
    top.press("?pi")?;
    top.shows(&["paused"])?;
    top.press("p")?;
    top.shows(&["next in"])?;
    // Another debugger must be able to attach between two inspections.
    process::wait_until("nothing is attached", LIMIT, || {
        pool.is_traced().is_ok_and(|traced| !traced)
    })?;
    top.press("q")?;
    top.ends_well()?;
    pool.ends_unharmed()?;

    // It notices the end of the program, of which it is not the parent.
    pool = Pool::start()?;
    let mut top = Terminal::start(&["--attach", &pool.pid().to_string()], 80, 24)?;
    top.shows(&["mutex settings"])?;
    pool.release()?;
    top.shows(&["The program has ended with exit code 7."])?;
    top.press("q")?;
    top.ends_well()?;
    Ok(())
}

/// A narrow terminal, and one whose size changes.
fn narrow() -> Result<()> {
    let pool = Pool::start()?;
    let mut top = Terminal::start(&["--attach", &pool.pid().to_string()], 60, 20)?;
    top.shows(&["  3  serve", "100%", "mutex"])?;
    top.shows(&["q quit"])?;
    let mut stty = Command::new("stty");
    stty.arg("-F").arg(ttyname(&top.slave)?);
    stty.args(["cols", "90", "rows", "12"]);
    process::run(&mut stty, LIMIT)?.success()?;
    let mut parser = top.parser.lock().unwrap_or_else(PoisonError::into_inner);
    parser.screen_mut().set_size(cells(12)?, cells(90)?);
    drop(parser);
    // The kernel sends this signal to the foreground of a session.
    let unspool = Pid::from_raw(top.unspool.0.id().cast_signed());
    kill(unspool, Signal::SIGWINCH)?;
    top.shows(&["q quit", "? help"])?;
    top.press("\x03")?;
    top.ends_well()?;
    pool.ends_unharmed()
}

/// A program that `top` starts: it runs on after `q`, and its exit code is shown.
fn launch() -> Result<()> {
    let (folder, program) = compile()?;
    let output = folder.path().join("output");
    let words = [output.to_str(), program.to_str()];
    let [Some(output), Some(program)] = words else {
        anyhow::bail!("no plain path");
    };
    // Its standard input is empty, so it ends at once.
    let mut top = Terminal::start(&["--", "sh", "-c", "sleep 4; exit 5"], 80, 24)?;
    top.shows(&["  1  main"])?;
    top.shows(&["The program has ended with exit code 5."])?;
    top.press("q")?;
    top.ends_well()?;

    let script = format!("sleep 3; {program}");
    let mut top = Terminal::start(&["-o", output, "--", "sh", "-c", &script], 80, 24)?;
    top.shows(&["  1  main"])?;
    top.press("q")?;
    let rest = top.ends_well()?;
    ensure!(rest.contains("still runs"), "{rest}");
    process::wait_until("the program ends", LIMIT, || {
        std::fs::read_to_string(output).is_ok_and(|text| text == "ready\ndone\n")
    })
}

/// A program behind `unspool-stub`.
fn stub() -> Result<()> {
    let mut pool = Pool::start()?;
    let (mut server, address) = serve(&workspace::stub()?, pool.pid())?;
    let mut top = Terminal::start(&["--connect", &address], 100, 30)?;
    top.shows(&["  3  serve \"pool-…\"", "  0%   0% 100%", "held by"])?;
    top.shows(&["  1  compute", "running"])?;
    top.press("q")?;
    top.ends_well()?;
    // With --once it ends with its client.
    server.ends_well("the server", LIMIT)?;
    pool.ends_unharmed()?;

    pool = Pool::start()?;
    let (_server, address) = serve(&workspace::stub()?, pool.pid())?;
    let mut top = Terminal::start(&["--connect", &address], 100, 30)?;
    top.shows(&["mutex settings"])?;
    pool.release()?;
    top.shows(&["The program has ended with exit code 7."])?;
    top.press("q")?;
    top.ends_well()?;
    Ok(())
}

/// gdbserver answers no requests while the program runs.
fn gdbserver() -> Result<()> {
    let pool = Pool::start()?;
    let (_server, address) = serve("gdbserver".as_ref(), pool.pid())?;
    let top = Terminal::start(&["--connect", &address], 100, 30)?;
    top.shows(&["answers no questions while the program runs"])?;
    pool.ends_unharmed()
}

/// Signals restore the terminal and leave the program unharmed.
fn signals() -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let pool = Pool::start()?;
        let top = Terminal::start(&["--attach", &pool.pid().to_string()], 80, 24)?;
        top.shows(&["mutex settings"])?;
        kill(Pid::from_raw(top.unspool.0.id().cast_signed()), signal)?;
        top.ends_well().with_context(|| signal.to_string())?;
        pool.ends_unharmed().with_context(|| signal.to_string())?;
    }
    // A killed process cannot restore the terminal.
    let pool = Pool::start()?;
    let mut top = Terminal::start(&["--attach", &pool.pid().to_string()], 80, 24)?;
    top.shows(&["mutex settings"])?;
    top.press("iiii")?;
    top.unspool.0.kill()?;
    pool.ends_unharmed()
}

/// Errors are one sentence on the terminal, which stays as it was.
fn errors() -> Result<()> {
    let mut command = report::unspool()?;
    command.args(["top", "--attach", "1"]);
    let run = process::run(&mut command, LIMIT)?;
    ensure!(
        run.code()? == 1 && run.stderr.contains("top needs a terminal"),
        "{run}"
    );
    let none = u32::MAX.to_string();
    let itself = std::process::id().to_string();
    let cases = [
        (&["--attach", &none][..], "there is no process"),
        (&["--attach", "2"], "process 2 may not be traced"),
        (&["--", "./no-such-program"], "cannot run ./no-such-program"),
        (&[], "you have not named a program"),
        (&["--attach", &itself, "--", "x"], "cannot be used with"),
    ];
    for (arguments, message) in cases {
        let mut top = Terminal::start(arguments, 100, 30)?;
        top.shows(&[message])?;
        let status = top.unspool.0.wait()?;
        ensure!(!status.success(), "{arguments:?}: {status}");
        top.is_restored()?;
    }
    Ok(())
}

/// Several waits for one object do not add up to a long one.
fn short_waits() -> Result<()> {
    /// Time in which several inspections take place.
    const WATCHED: Duration = Duration::from_secs(12);
    let (_folder, program) = waiting::compile_in(".", "short_waits.c", &["gcc", "-g", "-pthread"])?;
    let mut command = Command::new(program);
    let mut child = Background(process::start(command.stdout(Stdio::piped()))?);
    let mut lines = BufReader::new(child.0.stdout.take().context("piped")?).lines();
    ensure!(lines.next().transpose()?.as_deref() == Some("ready"));
    let mut top = Terminal::start(&["--attach", &child.0.id().to_string()], 100, 30)?;
    top.shows(&["2 threads"])?;
    let begun = std::time::Instant::now();
    let mut longest: Option<f64> = None;
    while begun.elapsed() < WATCHED {
        let screen = top.text();
        // `  1  0.3 s    mutex turn, held by ...`
        for line in screen.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [_, seconds, "s", "mutex", "turn,", "held", ..] = words[..] {
                let seconds: f64 = seconds.parse()?;
                longest = Some(longest.map_or(seconds, |longest| longest.max(seconds)));
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    top.press("q")?;
    top.ends_well()?;
    // The processor may be busy.
    ensure!(
        longest.is_some_and(|longest| longest < 1.2),
        "{longest:?} s"
    );
    Ok(())
}
