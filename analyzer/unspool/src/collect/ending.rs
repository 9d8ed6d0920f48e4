//! Ends a recording before its program ends: on request, or after an error.
//!
//! The recorder first interrupts and then kills a program that it started. It stops any other
//! program, removes its probes and detaches. A server may answer a request to stop by sending a
//! real SIGINT to the program, so the recorder always waits for this answer before it detaches.
//! Otherwise the signal would kill the program.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unspool_capture::{EndReason, Severity};

use super::emulator::EmulatorStop;
use super::error::Error;
use super::session::Session;
use super::sink::Sink;

/// Time that a started program has to end after SIGINT. The help states it.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time until the terminal's own SIGINT reaches the program.
const TERMINAL_DELAY: Duration = Duration::from_millis(100);
/// Interval within which two requests count as one: a terminal and a script may both send the
/// signal.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(200);
/// Interval after which a request is sent again. A server whose program has just stopped drops it,
/// unlike `unspool-stub`: a repeated request there would stop the program once more.
const INTERRUPT_RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// Time after which the server has evidently failed to send SIGINT. gdbserver signals the process
/// group that the program leads, so it cannot stop a program that leads no group.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Time in which a server must stop the program.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The state of an early end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    asked: Option<(Instant, EndReason)>,
    /// The program is about to stop for the end of the recording.
    awaited: bool,
    /// The time of the latest request to the server to stop the program.
    asked_server: Option<Instant>,
    /// The server has not answered that request. The program must not get a late answer as a
    /// signal.
    unanswered: bool,
    /// The time at which the program ran again after that answer.
    answered: Option<Instant>,
    /// The time of the latest SIGINT to the program that the recorder did not send.
    interrupted: Option<Instant>,
    /// The time at which the program got its SIGINT.
    signalled: Option<Instant>,
    /// The processes that get SIGINT after the program.
    started: Vec<Pid>,
    killed: bool,
    pub(super) emulator: EmulatorStop,
}

impl Ending {
    /// True if the user or an error has begun the end.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// True if a stop by SIGINT, or by no signal, answers a request of the recorder.
    pub(super) fn takes_answer(&mut self) -> bool {
        std::mem::take(&mut self.unanswered)
    }

    /// Records that the program runs again after it was stopped on request. The server reports the
    /// terminal's own SIGINT only then.
    pub(super) fn program_runs_again(&mut self) {
        self.answered = Some(Instant::now());
    }

    /// The time until which the terminal's own SIGINT may reach the program.
    fn terminal_limit(&self, asked: Instant) -> Instant {
        match self.unanswered {
            true => asked + ANSWER_TIMEOUT,
            false => self.answered.unwrap_or(asked) + TERMINAL_DELAY,
        }
    }

    /// True if the recorder detaches at the program's next stop.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// True if a stop for another reason than the request may end the recording. `unspool-stub`
    /// never has a SIGINT under way, and a busy program may produce only such stops.
    pub(super) fn can_end_here(&self, own_stub: bool) -> bool {
        let unanswered = |(since, _): (Instant, EndReason)| since.elapsed() > ANSWER_TIMEOUT;
        !self.emulator.is_under_way()
            && self.awaited
            && (own_stub || self.asked.is_some_and(unanswered))
    }

    /// Records that the program gets a SIGINT that the recorder did not send.
    pub(super) fn program_was_interrupted(&mut self) {
        self.interrupted = Some(Instant::now());
    }

    /// The reason for the end of the recording, if the program ends now.
    pub(super) fn reason(&self) -> EndReason {
        self.asked
            .map_or(EndReason::ProgramEnded, |(_, reason)| reason)
    }

    /// Time until the next step is due.
    pub(super) fn next_step(&self) -> Option<Duration> {
        let (since, reason) = self.asked?;
        if reason == EndReason::Error || self.awaited {
            return None;
        }
        let due = match self.signalled {
            Some(at) => at + EXIT_TIMEOUT,
            None => self.terminal_limit(since),
        };
        Some(
            due.saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1)),
        )
    }

    /// True if the recorder ends the program.
    pub(super) fn ends_program(&self, session: &Session) -> bool {
        session.launched && self.reason() != EndReason::Error
    }

    /// Begins the end, or accelerates it. The program runs.
    pub(super) fn ask(&mut self, session: &mut Session, reason: EndReason) -> Result<(), Error> {
        if let Some((since, earlier)) = self.asked {
            if earlier == EndReason::Error && reason != earlier && !self.awaited {
                // The recording has failed, and now the user wants the program to end, too.
                self.asked = Some((Instant::now(), reason));
                return Ok(());
            }
            if since.elapsed() > MIN_REQUEST_INTERVAL && session.launched && !self.awaited {
                session.kill_program(Signal::SIGKILL);
                self.killed = true;
            }
            return Ok(());
        }
        self.asked = Some((Instant::now(), reason));
        if session.observes {
            // An observer need not wait for a stop.
            return Ok(());
        }
        self.awaited = !session.launched || reason == EndReason::Error;
        // Read the threads of a started program before SIGINT, which may change everything.
        self.interrupt(session)
    }

    /// Asks the server to stop the program, if it runs.
    fn interrupt(&mut self, session: &mut Session) -> Result<(), Error> {
        if session.client.is_running() {
            self.asked_server = Some(Instant::now());
            self.unanswered = true;
            session.client.interrupt()?;
        }
        Ok(())
    }

    /// Takes the next step if it is due.
    pub(super) fn advance(&mut self, session: &mut Session, sink: &mut Sink) -> Result<(), Error> {
        let Some((since, reason)) = self.asked else {
            return Ok(());
        };
        if session.observes && !self.ends_program(session) {
            return Ok(());
        }
        let elapsed = since.elapsed();
        if self.awaited {
            if elapsed > STOP_TIMEOUT {
                return Err(Error::Unstoppable);
            }
            if self
                .asked_server
                .is_none_or(|at| !session.own_stub && at.elapsed() > INTERRUPT_RETRY_INTERVAL)
            {
                self.interrupt(session)?;
            }
            self.emulator.stop(session, sink);
            return Ok(());
        }
        if !session.launched || reason == EndReason::Error {
            return Ok(());
        }
        let by_terminal = self
            .interrupted
            .is_some_and(|at| at + TERMINAL_DELAY * 2 >= since);
        let Some(signalled) = self.signalled else {
            if by_terminal || self.terminal_limit(since) <= Instant::now() {
                self.signalled = Some(Instant::now());
                if !by_terminal {
                    self.started = session.started_in_group();
                    session.kill_program(Signal::SIGINT);
                }
            }
            return Ok(());
        };
        if signalled.elapsed() >= TERMINAL_DELAY {
            self.interrupt_started();
        }
        if signalled.elapsed() >= EXIT_TIMEOUT && !self.killed {
            self.killed = true;
            sink.note(
                Severity::Warning,
                "the program did not end within 2 seconds of SIGINT and was killed",
            );
            session.kill_program(Signal::SIGKILL);
        }
        Ok(())
    }

    /// Sends SIGINT to the processes that the program has started, as a terminal does: a shell
    /// waits for them. The program gets its own first, so that their ends change nothing in it.
    pub(super) fn interrupt_started(&mut self) {
        for pid in self.started.drain(..) {
            // It may just have ended.
            let _ = kill(pid, Signal::SIGINT);
        }
    }

    /// Requests one more stop of a program that runs on after its threads have been read.
    pub(super) fn ask_for_last_stop(&mut self, session: &mut Session) -> Result<(), Error> {
        self.asked = Some((Instant::now(), self.reason()));
        self.interrupt(session)
    }

    /// Records that the program has stopped for the end of the recording.
    pub(super) fn stopped(&mut self) {
        self.awaited = false;
    }
}

/// True if the server refused a request and the session can continue.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Rsp(error) if !error.is_fatal())
}

/// Empties the pipe that carries the user's requests.
pub(super) fn consume(requests: &OwnedFd) {
    let mut bytes = [0; 64];
    let _ = nix::unistd::read(requests, &mut bytes);
}
