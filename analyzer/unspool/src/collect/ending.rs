//! How a recording ends before the program does: asked by the user, or because it cannot go on.
//!
//! A program we started is asked to end, then made to. One that was there before is stopped,
//! freed of everything planted, and goes on. A server may answer a request to stop with a real
//! SIGINT to the program, so that answer is always waited for before detaching: otherwise the
//! program would be killed by it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unspool_capture::{EndReason, Severity};

use super::recorder::Recorder;
use super::{Ended, Error};

/// How long a started program may take to end after SIGINT; the help says so, too.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the terminal's own SIGINT may take to show up in the program.
const TERMINAL_DELAY: Duration = Duration::from_millis(100);
/// Requests closer than this are one: a terminal and a script may send the same signal.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(200);
/// A request that crosses a stop on the wire reaches a server whose program stands already, and
/// is dropped there; one that takes this long was.
const INTERRUPT_RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// After so long, a SIGINT that the server had sent would have been seen: it sent none. gdbserver
/// signals the process group that the program leads, and so cannot stop one that leads none.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a server may take to stop the program.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the recording is on its way to an early end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    asked: Option<(Instant, EndReason)>,
    /// The server was asked to stop the program.
    awaited: bool,
    /// When it was asked last.
    asked_server: Option<Instant>,
    /// It has not answered that. An answer that comes late is nothing that the program is to get.
    unanswered: bool,
    /// The program got a SIGINT that we did not send, at that time.
    interrupted: Option<Instant>,
    signalled: bool,
    killed: bool,
}

impl Ending {
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The program stands by SIGINT, or by nothing: whether that is the server's answer to us.
    pub(super) fn takes_answer(&mut self) -> bool {
        std::mem::take(&mut self.unanswered)
    }

    /// The program is to be let go as soon as it stands.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// The program stands, for another reason than our request: whether it can be let go now. Our own
    /// stub has no SIGINT under way to it, and a busy program may give only such stops for long.
    pub(super) fn can_end_here(&self, own_stub: bool) -> bool {
        let unanswered = |(since, _): (Instant, EndReason)| since.elapsed() > ANSWER_TIMEOUT;
        self.awaited && (own_stub || self.asked.is_some_and(unanswered))
    }

    pub(super) fn program_was_interrupted(&mut self) {
        self.interrupted = Some(Instant::now());
    }

    /// Why the recording ends, should the program end now.
    pub(super) fn reason(&self) -> EndReason {
        self.asked
            .map_or(EndReason::ProgramEnded, |(_, reason)| reason)
    }

    /// When something is to be done next.
    pub(super) fn next_step(&self) -> Option<Duration> {
        let (since, reason) = self.asked?;
        if reason == EndReason::Error || self.awaited {
            return None;
        }
        let due = if self.signalled {
            EXIT_TIMEOUT
        } else {
            TERMINAL_DELAY
        };
        Some(
            due.saturating_sub(since.elapsed())
                .max(Duration::from_millis(1)),
        )
    }
}

/// The server did not do what it was asked for, and the session goes on.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Rsp(error) if !error.is_fatal())
}

impl Recorder {
    /// Whether the program is to end before the recording does.
    pub(super) fn ends_program(&self) -> bool {
        self.session.launched && self.ending.reason() != EndReason::Error
    }

    /// Begins the end, or hastens it. The program runs.
    pub(super) fn ask_to_end(&mut self, reason: EndReason) -> Result<(), Error> {
        if let Some((since, earlier)) = self.ending.asked {
            if earlier == EndReason::Error && reason != earlier && !self.ending.awaited {
                // Nothing is recorded any more, and now the user has enough of the program, too.
                self.ending.asked = Some((Instant::now(), reason));
                return Ok(());
            }
            if since.elapsed() > MIN_REQUEST_INTERVAL
                && self.session.launched
                && !self.ending.awaited
            {
                self.kill_program(Signal::SIGKILL);
                self.ending.killed = true;
            }
            return Ok(());
        }
        self.ending.asked = Some((Instant::now(), reason));
        if self.session.observes {
            // There is nothing to wait for; see `observe`.
            return Ok(());
        }
        self.ending.awaited = !self.session.launched || reason == EndReason::Error;
        // A program that we started is read before it gets SIGINT: it may do anything then.
        self.interrupt()
    }

    fn interrupt(&mut self) -> Result<(), Error> {
        if self.session.client.is_running() {
            self.ending.asked_server = Some(Instant::now());
            self.ending.unanswered = true;
            self.session.client.interrupt()?;
        }
        Ok(())
    }

    /// Does what has become due on the way to an early end.
    pub(super) fn press_on(&mut self) -> Result<(), Error> {
        let Some((since, reason)) = self.ending.asked else {
            return Ok(());
        };
        if self.session.observes && !self.ends_program() {
            return Ok(());
        }
        let elapsed = since.elapsed();
        if self.ending.awaited {
            if elapsed > STOP_TIMEOUT {
                return Err(Error::Unstoppable);
            }
            if self
                .ending
                .asked_server
                .is_none_or(|at| at.elapsed() > INTERRUPT_RETRY_INTERVAL)
            {
                self.interrupt()?;
            }
            self.stop_emulator();
            return Ok(());
        }
        if !self.session.launched || reason == EndReason::Error {
            return Ok(());
        }
        let by_terminal = self
            .ending
            .interrupted
            .is_some_and(|at| at + TERMINAL_DELAY * 2 >= since);
        if !self.ending.signalled && (by_terminal || elapsed >= TERMINAL_DELAY) {
            self.ending.signalled = true;
            if !by_terminal {
                self.kill_program(Signal::SIGINT);
            }
        }
        if elapsed >= EXIT_TIMEOUT && !self.ending.killed {
            self.ending.killed = true;
            self.sink.note(
                Severity::Warning,
                "the program did not end within 2 seconds of SIGINT and was killed",
            );
            self.kill_program(Signal::SIGKILL);
        }
        Ok(())
    }

    /// The program stands because we wanted it to.
    pub(super) fn stopped_for_end(&mut self) -> Result<Option<(Ended, EndReason)>, Error> {
        let reason = self.ending.reason();
        if self.threads_run_on {
            self.note_last_threads()?;
        } else {
            self.threads
                .compare(&mut self.sink, &mut self.session, false);
        }
        // A program that is ending has no probes any more, and its end comes next.
        let removed = self.probes.remove_all(&mut self.session.client);
        let is_ending = self.session.own_stub && removed.as_ref().err().is_some_and(is_refusal);
        if !is_ending {
            removed?;
        }
        if !is_ending && self.inspect_and_resume(reason)? {
            return Ok(None);
        }
        self.ending.awaited = false;
        if self.session.launched {
            // Only a failure leads here. The program runs to its end, unrecorded.
            if !is_ending {
                self.session.client.thread_events(false)?;
            }
            self.resume()?;
            return Ok(None);
        }
        self.end_schedule()?;
        match self.session.client.detach().map_err(Error::from) {
            Err(error) if !(is_ending && is_refusal(&error)) => Err(error),
            _ => Ok(Some((Ended::Detached, reason))),
        }
    }

    /// Reads the threads of a program that goes on without us. Whether it runs again, to be stopped once
    /// more: what its files say can take time, which it need not wait for.
    fn inspect_and_resume(&mut self, reason: EndReason) -> Result<bool, Error> {
        // QEMU's user mode cannot be asked while all threads wait.
        if self.session.launched || self.threads_run_on || reason == EndReason::Error {
            return Ok(false);
        }
        if !self.session.own_stub {
            self.inspect_for_end(None, true)?;
            return Ok(false);
        }
        if self.end_inspection.has_begun() {
            self.finish_inspection()?;
            return Ok(false);
        }
        self.begin_inspection(None, true)?;
        if !self.end_inspection.has_begun() {
            return Ok(false);
        }
        self.resume()?;
        self.find_wanted();
        self.ending.asked = Some((Instant::now(), reason));
        self.interrupt()?;
        Ok(true)
    }

    /// Lets the program go, as well as can be, when recording cannot go on: a program that we
    /// started is killed, for it has not been run as asked; any other goes on by itself.
    pub(super) fn abandon(&mut self) -> Ended {
        let client = &mut self.session.client;
        if client.is_running() && client.interrupt().is_ok() {
            let _ = client.wait(Some(EXIT_TIMEOUT));
        }
        if self.session.launched {
            match self.session.local {
                true => drop(client.kill()),
                false => self.kill_program(Signal::SIGKILL),
            }
            return Ended::Terminated(Signal::SIGKILL as u8);
        }
        let _ = self.probes.remove_all(client);
        let _ = client.detach();
        Ended::Detached
    }

    fn kill_program(&mut self, signal: Signal) {
        if !self.session.local {
            // gdb's numbers of SIGINT and SIGKILL are Linux's.
            let _ = self.session.client.signal(signal as u8);
            return;
        }
        let pid = self
            .session
            .pid
            .and_then(|pid| i32::try_from(pid).ok())
            .filter(|pid| *pid > 1);
        if let Some(pid) = pid {
            // It may have ended this very moment; its end is then reported all the same.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}
