//! The event loop: waits for stop replies, notices and the user, and decides when the program runs.
//!
//! Handlers of a stop return a [`Command`], and only the loop resumes the program. While another
//! client such as gdb is connected, the recorder observes (docs/reference/protocol.md, "Several
//! clients"): it gets notices instead of stops. A thread that loads a library, has a very long
//! stack or executes a file waits some seconds for the observer, while the rest of the program
//! runs.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use unspool_capture::{EndReason, Header, ProcessEnded, ProcessStarted, Severity};
use unspool_rsp::{Breakpoint, Notice, StopReason, StopReply, ThreadId, signals};

use super::ending::{EXIT_TIMEOUT, Ending, consume, is_refusal};
use super::error::Error;
use super::options::{Ended, Options, Outcome};
use super::place::Purpose;
use super::recorder::{Recorder, StopHit};
use super::session::{SIGCHLD, SIGINT, SIGTRAP, Session};
use super::sink::Sink;
use super::stepper::Stepper;

/// Maximum interval between two reads of the thread names, and between two writes to the file.
const WORK_INTERVAL: Duration = Duration::from_millis(100);
/// Time for which the recorder waits for the server's last notices.
const LAST_NOTICE_TIMEOUT: Duration = Duration::from_millis(50);

/// The loop's next action after a stop.
#[derive(Debug)]
enum Command {
    Resume,
    /// Resume, and deliver a signal (gdb's number) to a thread.
    Signal(ThreadId, u8),
    /// Resume a thread that is stopped at a breakpoint, and all other threads with it.
    Pass(ThreadId, Breakpoint),
    /// Detach from the program, which has stopped for the end of the recording.
    Detach,
    /// End the recording.
    Finish(Ended, EndReason),
}

/// The recording of a program, from its first stop to its end.
struct EventLoop {
    recorder: Recorder,
    stepper: Stepper,
    ending: Ending,
    /// Becomes readable when the user wants the recording to end.
    stop: Option<OwnedFd>,
}

/// Records a program to its end. Calls `open` once the program has started, and `begun` when its
/// recording has begun.
pub(super) fn record(
    mut options: Options,
    open: impl FnOnce(Header) -> Result<Sink, Error>,
    begun: impl FnOnce(),
) -> Result<Outcome, Error> {
    let observe = options.may_observe();
    let (session, stop) = Session::open(&mut options, observe, true)?;
    let header = Session::header(&options, false);
    let (sink, failure) = match open(header) {
        Ok(sink) => (sink, None),
        // Detaching in the proper order needs a recorder, so create one even now.
        Err(error) => (Sink::memory(Default::default()), Some(error)),
    };
    let mut event_loop = EventLoop {
        stepper: Stepper::new(&session),
        ending: Ending::default(),
        stop: options.stop.take(),
        recorder: Recorder::new(session, sink, options),
    };
    let result = match failure {
        Some(error) => Err(error),
        None => event_loop.begin(stop),
    };
    match result {
        Ok(()) => {
            begun();
            Ok(event_loop.run_to_end())
        }
        Err(error) => {
            event_loop.abandon();
            Err(error)
        }
    }
}

impl EventLoop {
    /// Prepares the program, which is stopped since `stop`, and resumes it.
    fn begin(&mut self, stop: StopReply) -> Result<(), Error> {
        self.recorder.prepare(&stop)?;
        if self.recorder.session.observes {
            return self.let_run();
        }
        let command = match stop {
            // An attached process may have a pending signal that stopped it.
            StopReply::Stopped {
                signal,
                thread: Some(thread),
                ..
            } if ![0, SIGTRAP, SIGINT, SIGCHLD].contains(&signal) => {
                Command::Signal(thread, signal)
            }
            _ => Command::Resume,
        };
        self.execute(command).map(drop)
    }

    /// Resumes an observed program, unless another client controls it.
    fn let_run(&mut self) -> Result<(), Error> {
        if !self.recorder.session.client.let_run()? {
            self.recorder.sink.note(
                Severity::Info,
                "another client of the stub, such as gdb, controls the program. While that \
                 client keeps the program stopped, no events occur, but time passes",
            );
        }
        Ok(())
    }

    /// Follows the program until the recording ends for any reason.
    fn run_to_end(mut self) -> Outcome {
        let run = self.run();
        self.ending.interrupt_started();
        let (ended, reason, failure) = match run {
            Ok((ended, reason)) => (ended, reason, None),
            Err(error) => {
                let local = self.recorder.session.local;
                let error = match error {
                    Error::Rsp(error) if error.is_fatal() && !local => Error::Lost(error),
                    error => error,
                };
                let (ended, reason) = match error.is_loss() {
                    true => (Ended::ConnectionLost, EndReason::ConnectionLost),
                    false => (self.abandon(), EndReason::Error),
                };
                (ended, reason, Some(error))
            }
        };
        let detail = failure
            .as_ref()
            .map_or_else(String::new, ToString::to_string);
        let recorder = &mut self.recorder;
        let missing = recorder.record_rest(reason);
        let write = recorder.sink.finish(reason, detail).map(Error::Write);
        recorder.program.modules.keep_tables();
        if failure.is_none() {
            recorder.session.leave_stub();
        }
        Outcome {
            ended,
            failure: write.or(failure).or(missing),
            unmatched: recorder.planter.calls.unmatched(),
        }
    }

    fn run(&mut self) -> Result<(Ended, EndReason), Error> {
        loop {
            let reply = self.next()?;
            let recorder = &mut self.recorder;
            recorder.take_notices();
            if recorder.planter.probes.tracing && recorder.session.local {
                let (session, sink) = (&mut recorder.session, &mut recorder.sink);
                recorder.threads.list_if_due(sink, session);
            }
            if let Some(reply) = reply {
                let command = self.on_reply(reply)?;
                if let Some(end) = self.execute(command)? {
                    return Ok(end);
                }
            }
            if let Some(end) = self.observe()? {
                return Ok(end);
            }
            let recorder = &mut self.recorder;
            recorder.find_generated_code();
            recorder.sample_if_due();
            recorder.session.check_link()?;
            if self.ending.is_asked() && recorder.session.client.is_running() {
                recorder.inspect_others(true);
            }
            let (session, sink) = (&mut recorder.session, &mut recorder.sink);
            if sink.has_failed() && !self.ending.is_asked() {
                self.ending.ask(session, EndReason::Error)?;
            }
            self.ending.advance(session, sink)?;
        }
    }

    /// Carries out a command. Returns the outcome if the command ends the recording.
    fn execute(&mut self, command: Command) -> Result<Option<(Ended, EndReason)>, Error> {
        let session = &mut self.recorder.session;
        match command {
            Command::Resume => session.resume()?,
            Command::Signal(thread, signal) => session.resume_with(thread, Some(signal))?,
            Command::Pass(thread, breakpoint) => self.stepper.pass(session, thread, breakpoint)?,
            Command::Detach => return self.detach(),
            Command::Finish(ended, reason) => return Ok(Some((ended, reason))),
        }
        Ok(None)
    }

    /// The next reply; `None` if none arrives before other work is due.
    fn next(&mut self) -> Result<Option<StopReply>, Error> {
        if let Some(reply) = self.stepper.take_reply() {
            return Ok(Some(reply));
        }
        let Recorder {
            session,
            sink,
            threads,
            ..
        } = &mut self.recorder;
        if let Some(reply) = session.wait(Duration::ZERO)? {
            return Ok(Some(reply));
        }
        sink.flush_if_due();
        let wait = self
            .ending
            .next_step()
            .unwrap_or(WORK_INTERVAL)
            .min(WORK_INTERVAL);
        let mut fds = vec![PollFd::new(session.client.as_fd(), PollFlags::POLLIN)];
        fds.extend(
            self.stop
                .as_ref()
                .map(|stop| PollFd::new(stop.as_fd(), PollFlags::POLLIN)),
        );
        let ready = poll(
            &mut fds,
            PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO),
        );
        let asked = fds.get(1).is_some_and(|fd| fd.any().unwrap_or(false));
        if asked {
            if let Some(stop) = &self.stop {
                consume(stop);
            }
            self.ending.ask(session, EndReason::Interrupted)?;
        } else if ready == Ok(0) {
            threads.refresh_local_names(sink, session);
        }
        Ok(None)
    }

    /// Acts on one stop reply.
    fn on_reply(&mut self, reply: StopReply) -> Result<Command, Error> {
        let recorder = &mut self.recorder;
        match reply {
            StopReply::Stopped {
                signal,
                thread,
                reason,
                registers,
                memory,
                ..
            } => {
                recorder.hits.walker.set_sent(memory);
                match thread.or_else(|| recorder.threads.ids().first().copied()) {
                    Some(thread) => self.on_stop(signal, thread, reason, registers),
                    None => Ok(Command::Resume),
                }
            }
            StopReply::ThreadExited { code, thread } => {
                recorder
                    .threads
                    .exited(&mut recorder.sink, thread.tid, Some(code), true);
                self.stepper.take_step(thread.tid);
                Ok(Command::Resume)
            }
            StopReply::Exited { code, .. } => {
                let time_ns = recorder.sink.now_ns();
                recorder.sink.record(ProcessEnded {
                    time_ns,
                    exit_code: Some(code),
                    signal: None,
                });
                Ok(Command::Finish(Ended::Exited(code), self.ending.reason()))
            }
            StopReply::Terminated { signal, .. } => {
                let linux = signals::to_linux(signal).unwrap_or(signal);
                if i32::from(linux) == nix::libc::SIGKILL && recorder.planter.places.jumps > 0 {
                    recorder.sink.note(
                        Severity::Warning,
                        "SIGKILL ended the program, so events of its last 10 milliseconds may be \
                         missing",
                    );
                }
                let time_ns = recorder.sink.now_ns();
                recorder.sink.record(ProcessEnded {
                    time_ns,
                    exit_code: None,
                    signal: Some(linux.into()),
                });
                Ok(Command::Finish(
                    Ended::Terminated(linux),
                    self.ending.reason(),
                ))
            }
            _ => {
                recorder.sink.note(
                    Severity::Warning,
                    "the server reports that no thread is left",
                );
                Ok(Command::Finish(Ended::Detached, EndReason::ProgramEnded))
            }
        }
    }

    fn on_stop(
        &mut self,
        signal: u8,
        thread: ThreadId,
        reason: StopReason,
        expedited: Vec<(u32, Vec<u8>)>,
    ) -> Result<Command, Error> {
        let recorder = &mut self.recorder;
        match reason {
            StopReason::ThreadCreated => {
                let (session, sink) = (&mut recorder.session, &mut recorder.sink);
                recorder.threads.seen(sink, session, thread, false);
                return Ok(Command::Resume);
            }
            StopReason::Exec(path) => {
                recorder.on_exec(thread.tid, &path)?;
                return Ok(Command::Resume);
            }
            StopReason::Fork(child) | StopReason::VFork(child) => {
                self.on_fork(thread, child)?;
                return Ok(Command::Resume);
            }
            StopReason::VForkDone
            | StopReason::Library
            | StopReason::SyscallEntry(_)
            | StopReason::SyscallReturn(_) => return Ok(Command::Resume),
            _ => {}
        }
        if signal == SIGTRAP {
            if let Some(breakpoint) = self.on_breakpoint(thread, &expedited)? {
                let recorder = &mut self.recorder;
                self.ending.emulator.stopped_elsewhere();
                if self.ending.can_end_here(recorder.session.own_stub) {
                    return Ok(Command::Detach);
                }
                recorder
                    .threads
                    .list_if_due(&mut recorder.sink, &mut recorder.session);
                return Ok(Command::Pass(thread, breakpoint));
            }
            if self.stepper.take_step(thread.tid) {
                return Ok(Command::Resume);
            }
        }
        self.on_signal(signal, thread)
    }

    /// Handles the probes at which `thread` is stopped; `None` if there are none.
    fn on_breakpoint(
        &mut self,
        thread: ThreadId,
        expedited: &[(u32, Vec<u8>)],
    ) -> Result<Option<Breakpoint>, Error> {
        let recorder = &mut self.recorder;
        let registers = recorder.session.known_registers(thread, expedited)?;
        let abi = &recorder.session.abi;
        let Some(pc) = abi.pc(&registers).map(|pc| abi.code_address(pc)) else {
            return Ok(None);
        };
        let here = recorder.planter.probes.at(pc).to_vec();
        let Some(breakpoint) = here.first().map(|first| first.breakpoint) else {
            return Ok(None);
        };
        self.stepper.take_step(thread.tid);
        for planted in here {
            match planted.purpose {
                Purpose::Linker => recorder.update_modules()?,
                Purpose::Name => recorder.on_name(thread, registers.clone())?,
                Purpose::Exec => {}
                Purpose::Resolver => recorder.on_resolver(pc, &registers)?,
                // The server has recorded the hit; the stop belongs to another purpose.
                Purpose::Probe { kind, .. }
                    if kind.is_of_calls() && planted.tracepoint.is_some() => {}
                Purpose::Probe { id, kind } => recorder.on_probe(StopHit {
                    thread,
                    id,
                    kind,
                    pc,
                    registers: registers.clone(),
                })?,
            }
        }
        Ok(Some(breakpoint))
    }

    /// Acts on a stop by a signal (gdb's number).
    fn on_signal(&mut self, signal: u8, thread: ThreadId) -> Result<Command, Error> {
        let stopped_emulator = self.ending.emulator.takes(signal);
        if [0, SIGINT, SIGCHLD].contains(&signal) || stopped_emulator {
            let is_answer = self.ending.takes_answer();
            if self.ending.is_awaited() {
                return Ok(Command::Detach);
            }
            if is_answer {
                if self.ending.is_asked() {
                    self.recorder.inspect_for_end(None, true)?;
                    self.ending.program_runs_again();
                }
                return Ok(Command::Resume);
            }
        }
        if signal == SIGINT {
            self.ending.program_was_interrupted();
        }
        if ![0, SIGTRAP].contains(&signal) && self.recorder.session.is_fatal(signal) {
            self.recorder.inspect_for_end(Some(signal), true)?;
            self.recorder.inspect_others(false);
        }
        Ok(match signal {
            0 => Command::Resume,
            signal => Command::Signal(thread, signal),
        })
    }

    /// Detaches from a forked child and records it. `unspool-stub` reports processes in its thread
    /// notices.
    fn on_fork(&mut self, parent: ThreadId, child: ThreadId) -> Result<(), Error> {
        let recorder = &mut self.recorder;
        if !recorder.session.client.features().has("QUnspoolThreads") {
            let started = ProcessStarted {
                time_ns: recorder.sink.now_ns(),
                pid: child.pid.unwrap_or(child.tid),
                creator_tid: Some(parent.tid),
                executable: String::new(),
            };
            recorder.sink.record(started);
        }
        recorder.release_fork(child)
    }

    /// Handles notices that only an observer gets, and the user's request to end.
    fn observe(&mut self) -> Result<Option<(Ended, EndReason)>, Error> {
        if !self.recorder.session.observes {
            return Ok(None);
        }
        while let Some(notice) = self.recorder.notices.pending.pop_front() {
            let recorder = &mut self.recorder;
            match notice {
                Notice::Held { tid, at } => {
                    let done = recorder.on_held(tid, at);
                    self.unless_ended(done)?;
                }
                Notice::Executed(path) => {
                    let tid = recorder.session.pid.unwrap_or(0);
                    let done = recorder.on_exec(tid, &path);
                    self.unless_ended(done)?;
                }
                Notice::Fatal { tid, signal } => {
                    let done = recorder.inspect_for_end(Some(signal), false);
                    self.unless_ended(done)?;
                    let released = self.recorder.session.client.release(tid);
                    self.unless_ended(released.map(drop).map_err(Error::from))?;
                }
                Notice::Control(control) => {
                    recorder.notices.on_control(&mut recorder.sink, control);
                }
                Notice::Ended(Some(
                    end @ (StopReply::Exited { .. } | StopReply::Terminated { .. }),
                )) => {
                    let command = self.on_reply(end)?;
                    return self.execute(command);
                }
                Notice::Ended(_) => {
                    let text = "the client that controls the program has detached from it or started \
                         another program";
                    recorder.sink.note(Severity::Info, text);
                    return Ok(Some((Ended::Detached, EndReason::Detached)));
                }
                _ => {}
            }
        }
        let ends_program = self.ending.ends_program(&self.recorder.session);
        if self.ending.is_asked() && !ends_program {
            self.leave()?;
            return Ok(Some((Ended::Detached, self.ending.reason())));
        }
        Ok(None)
    }

    /// Ignores the failure of a request if a notice reports that the program has ended meanwhile.
    fn unless_ended(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = done else { return Ok(()) };
        let recorder = &mut self.recorder;
        recorder.session.client.listen(LAST_NOTICE_TIMEOUT)?;
        recorder.take_notices();
        let is_end = |notice: &Notice| matches!(notice, Notice::Ended(_));
        match recorder.notices.pending.iter().any(is_end) {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Removes an observer's probes; the program runs on.
    fn leave(&mut self) -> Result<(), Error> {
        let recorder = &mut self.recorder;
        recorder.inspect_for_end(None, false)?;
        (recorder.planter.probes).remove_all(&mut recorder.session.client)?;
        recorder.sink.close_threads();
        recorder.end_kernel_records()?;
        // The server still sends earlier hits.
        recorder.session.client.listen(LAST_NOTICE_TIMEOUT)?;
        recorder.take_notices();
        let (session, sink) = (&mut recorder.session, &mut recorder.sink);
        recorder.threads.compare(sink, session, false);
        Ok(session.client.detach()?)
    }

    /// Detaches from a program that has stopped for the end of the recording.
    fn detach(&mut self) -> Result<Option<(Ended, EndReason)>, Error> {
        let reason = self.ending.reason();
        self.recorder.list_last_threads()?;
        // A program that is about to exit has no probes any more. Its end is the next event.
        let recorder = &mut self.recorder;
        let client = &mut recorder.session.client;
        let removed = recorder.planter.probes.remove_all(client);
        let is_ending = recorder.session.own_stub && removed.as_ref().err().is_some_and(is_refusal);
        if !is_ending {
            removed?;
        }
        if !is_ending && self.inspect_and_resume(reason)? {
            return Ok(None);
        }
        self.ending.stopped();
        let session = &mut self.recorder.session;
        if session.launched {
            // Only a failure leads here. The program runs to its end without being recorded.
            if !is_ending {
                session.client.thread_events(false)?;
            }
            session.resume()?;
            return Ok(None);
        }
        self.recorder.end_kernel_records()?;
        let session = &mut self.recorder.session;
        match session.client.detach().map_err(Error::from) {
            Err(error) if !(is_ending && is_refusal(&error)) => Err(error),
            _ => {
                self.recorder.inspect_others(true);
                Ok(Some((Ended::Detached, reason)))
            }
        }
    }

    /// Reads the threads of a program that goes on after the recording. True if the program runs
    /// again and will stop once more: analyzing the stacks takes time and need not delay it.
    fn inspect_and_resume(&mut self, reason: EndReason) -> Result<bool, Error> {
        let recorder = &mut self.recorder;
        let session = &recorder.session;
        // QEMU's user mode accepts no requests while all threads wait.
        if session.launched || session.stops.one_thread || reason == EndReason::Error {
            return Ok(false);
        }
        if !session.own_stub {
            recorder.inspect_for_end(None, true)?;
            return Ok(false);
        }
        if recorder.end_inspection.has_begun() {
            return recorder.finish_inspection().map(|()| false);
        }
        if !recorder.begin_inspection()? {
            return Ok(false);
        }
        recorder.sink.close_threads();
        recorder.session.resume()?;
        recorder.end_inspection.find_wanted(&recorder.sink);
        self.ending.ask_for_last_stop(&mut recorder.session)?;
        Ok(true)
    }

    /// Ends a failed recording. Kills a program that the recording started, because it did not run
    /// as the user asked. Detaches from any other program.
    fn abandon(&mut self) -> Ended {
        let session = &mut self.recorder.session;
        let client = &mut session.client;
        if client.is_running() && client.interrupt().is_ok() {
            let _ = client.wait(Some(EXIT_TIMEOUT));
        }
        if session.launched {
            match session.local {
                true => drop(client.kill()),
                false => session.kill_program(Signal::SIGKILL),
            }
            return Ended::Terminated(Signal::SIGKILL as u8);
        }
        let _ = self.recorder.planter.probes.remove_all(client);
        let _ = client.detach();
        Ended::Detached
    }
}
