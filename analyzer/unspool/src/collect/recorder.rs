//! The recording: an event loop over the server's stop replies and the user's wish to end.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use unspool_capture::{Chunk, EndReason, ProcessEnded, ProcessStarted, Severity};
use unspool_rsp::{Action, Control, Notice, Registers, StopReason, StopReply, ThreadId, signals};

use super::calls::Calls;
use super::cpu_times::CpuSampling;
use super::creations::PendingCreations;
use super::emulator::EmulatorStop;
use super::end_inspection::EndInspection;
use super::ending::Ending;
use super::modules::Modules;
use super::probes::{Probes, Purpose};
use super::program::Program;
use super::schedule::ScheduleRecording;
use super::server_clock::ServerClock;
use super::session::Session;
use super::sink::Sink;
use super::stack::FIRST;
use super::stepper::StepMethod;
use super::threads::Threads;
use super::tracepoints::NotedPlaces;
use super::{Ended, Error, Options, Outcome, ProbeKinds};

/// gdb's numbers for the two signals that mean something to a debugger.
pub(super) const SIGTRAP: u8 = 5;
pub(super) const SIGINT: u8 = 2;
/// All numbers gdb gives to signals of Unix systems; the rest are for other systems' exceptions.
const SIGNALS: std::ops::RangeInclusive<u8> = 1..=142;

/// How often, at least, names are read again and the file is written.
const TICK: Duration = Duration::from_millis(100);

/// Everything that belongs to one recording.
pub(super) struct Recorder {
    pub(super) session: Session,
    pub(super) sink: Sink,
    pub(super) modules: Modules,
    pub(super) probes: Probes,
    pub(super) calls: Calls,
    pub(super) pending: PendingCreations,
    pub(super) threads: Threads,
    pub(super) program: Program,
    pub(super) libraries_known: bool,
    /// The program's file, where the user named it.
    pub(super) exec: Option<PathBuf>,
    /// Modules that stacks went through and whose file could not be used, and why.
    pub(super) unusable: BTreeMap<String, String>,
    /// How the server gets past breakpoints, once known.
    pub(super) step_method: Option<StepMethod>,
    /// The memory that came with the last stop.
    pub(super) stack_sent: Vec<Chunk>,
    /// Threads whose step has not been reported.
    pub(super) stepping: HashSet<u64>,
    /// Replies that came while another was waited for.
    pub(super) queue: VecDeque<StopReply>,
    pub(super) ending: Ending,
    pub(super) emulator_stop: EmulatorStop,
    /// The server holds only the thread that stopped; see `qemu_threads`.
    pub(super) threads_run_on: bool,
    /// Tracepoints are used where the server has them.
    pub(super) by_tracepoints: bool,
    /// These may be jumps.
    pub(super) by_jumps: bool,
    /// There is no budget: the program waits rather than that anything is lost.
    pub(super) at_any_cost: bool,
    pub(super) clock: ServerClock,
    /// What only observers are told, not yet acted on.
    pub(super) observed: VecDeque<Notice>,
    /// Who controls the program, if we do not.
    pub(super) control: Option<Control>,
    /// How many hits of each probe are known to be missing.
    pub(super) dropped: HashMap<u32, u64>,
    /// How the server notes hits.
    pub(super) places: NotedPlaces,
    /// Words that threads waited at when they were looked at.
    pub(super) waited_at: Vec<u64>,
    pub(super) cpu: CpuSampling,
    pub(super) schedule: ScheduleRecording,
    /// How often and how long threads were stopped for less than a millisecond; not written yet.
    pub(super) short_stops: Option<(u64, Duration)>,
    pub(super) end_inspection: EndInspection,
    /// The server stops before a signal ends the program.
    pub(super) stops_before_fatal: bool,
    stop: Option<OwnedFd>,
    listed: Instant,
}

pub(super) fn record(
    mut options: Options,
    open: impl FnOnce() -> io::Result<File>,
) -> Result<Outcome, Error> {
    let observe = options.may_observe();
    let (session, stop) = Session::open(&mut options, observe)?;
    let header = Session::header(&options, false);
    let sink = open()
        .map_err(Error::Output)
        .and_then(|file| Sink::file(file, header).map_err(Error::Write));
    let (sink, failure) = match sink {
        Ok(sink) => (sink, None),
        // The program must be let go in the same order as ever, so there is a recorder even now.
        Err(error) => (Sink::memory(Default::default()), Some(error)),
    };
    let mut recorder = Recorder::new(session, sink, options);
    let begun = match failure {
        Some(error) => Err(error),
        None => recorder.begin(stop),
    };
    match begun {
        Ok(()) => Ok(recorder.follow_to_end()),
        Err(error) => {
            recorder.abandon();
            Err(error)
        }
    }
}

impl Recorder {
    pub(super) fn new(session: Session, sink: Sink, options: Options) -> Self {
        let local = session.local;
        let observes = session.observes;
        // What the server keeps to, unless it was told otherwise.
        let usual = session.client.features().value("UnspoolBudget");
        let at_any_cost = options.budget.as_deref().or(usual) == Some("none");
        Self {
            modules: Modules::new(options.store, &session.abi),
            step_method: session.steps_over().then_some(StepMethod::Continue),
            session,
            sink,
            probes: Probes::new(observes),
            calls: Calls::new(options.calls),
            pending: PendingCreations::default(),
            threads: Threads::default(),
            program: Program::default(),
            libraries_known: false,
            exec: options.exec,
            unusable: BTreeMap::new(),
            stack_sent: Vec::new(),
            stepping: HashSet::new(),
            queue: VecDeque::new(),
            ending: Ending::default(),
            emulator_stop: EmulatorStop::default(),
            threads_run_on: false,
            by_tracepoints: match options.probes {
                ProbeKinds::Auto => local || observes,
                ProbeKinds::Tracepoints | ProbeKinds::Traps => true,
                ProbeKinds::Breakpoints => false,
            },
            by_jumps: options.probes != ProbeKinds::Traps,
            at_any_cost,
            observed: VecDeque::new(),
            control: None,
            dropped: HashMap::new(),
            clock: ServerClock::default(),
            places: NotedPlaces::default(),
            waited_at: Vec::new(),
            cpu: CpuSampling::new(),
            schedule: ScheduleRecording::default(),
            short_stops: None,
            end_inspection: EndInspection::new(options.wanted),
            stops_before_fatal: false,
            stop: options.stop,
            listed: Instant::now(),
        }
    }

    /// Prepares the program, which stands since `stop`, and lets it run.
    fn begin(&mut self, stop: StopReply) -> Result<(), Error> {
        let program = self.identify()?;
        self.find_out_about_stops(&stop);
        self.session.tells_creators = self.session.client.thread_log(FIRST / 2)?;
        self.sink.record(self.session.target(program.path.clone()));
        self.threads.exact = self.session.tells_creators
            || (self.session.can_report_threads() && self.session.client.thread_events(true)?);
        if !self.session.observes {
            let silent: Vec<u8> = SIGNALS
                .filter(|signal| ![SIGTRAP, SIGINT].contains(signal))
                .collect();
            self.session.client.pass_signals(&silent)?;
        }
        self.stops_before_fatal = self.session.client.stop_before_fatal_signals()?;
        let fresh = self.session.launched || self.has_not_begun(&program, &stop)?;
        self.threads
            .compare(&mut self.sink, &mut self.session, !fresh);
        for thread in self.threads.ids() {
            self.threads.start(thread.tid);
        }
        if self.session.launched {
            self.note_lost_privilege(&program.path);
        }
        if self.session.local && self.session.own_stub {
            self.clock.share(self.sink.now_ns());
        }
        self.begin_schedule()?;
        self.begin_trace()?;
        self.begin_program(program)?;
        if !fresh {
            self.look_at_earlier_threads()?;
        }
        if self.session.observes {
            return self.begin_observing();
        }
        match stop {
            // An attached process may have been stopped by a signal that is still to be delivered.
            StopReply::Stopped {
                signal,
                thread: Some(thread),
                ..
            } if ![0, SIGTRAP, SIGINT, 17].contains(&signal) => {
                self.resume_with(thread, Some(signal))
            }
            _ => self.resume(),
        }
    }

    /// Nobody watched the creation of threads that were there before; their stacks tell what they
    /// run. What the first thread runs is known.
    fn look_at_earlier_threads(&mut self) -> Result<(), Error> {
        let all = self.threads.ids();
        let mut threads = all.clone();
        threads.retain(|thread| Some(thread.tid) != self.session.pid);
        self.look_at(&threads)?;
        self.find_waits(&all)
    }

    /// Follows the program until recording ends, whatever the reason.
    fn follow_to_end(mut self) -> Outcome {
        let (ended, reason, failure) = match self.follow() {
            Ok((ended, reason)) => (ended, reason, None),
            Err(error) => {
                let local = self.session.local;
                let error = match error {
                    Error::Rsp(error) if error.is_fatal() && !local => Error::Lost(error),
                    error => error,
                };
                let lost = error.is_loss();
                let reason = if lost {
                    EndReason::ConnectionLost
                } else {
                    EndReason::Error
                };
                let ended = if lost {
                    Ended::ConnectionLost
                } else {
                    self.abandon()
                };
                (ended, reason, Some(error))
            }
        };
        let detail = failure
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        self.hear();
        if self.session.local {
            self.note_cpu_times();
        }
        if reason != EndReason::ConnectionLost {
            self.close_schedule();
        }
        self.note_short_stops();
        self.note_calls();
        self.note_places();
        let cut_short = self.cut_short();
        let write = self.sink.finish(reason, detail).map(Error::Write);
        self.modules.keep_tables();
        Outcome {
            ended,
            failure: write.or(failure).or(cut_short),
        }
    }

    /// What keeps a recording that went well from being whole.
    fn cut_short(&mut self) -> Option<Error> {
        for path in self.unusable.keys() {
            self.sink.note(
                Severity::Warning,
                format!(
                    "while recording, the file of {path} could not be used, so of the stacks that go \
                     through it only the inner part was kept"
                ),
            );
        }
        let others = self.unusable.len().saturating_sub(1);
        let (path, problem) = self.unusable.pop_first()?;
        Some(Error::Files {
            path,
            problem,
            others,
        })
    }

    fn follow(&mut self) -> Result<(Ended, EndReason), Error> {
        loop {
            let reply = self.next()?;
            self.hear();
            if self.probes.tracing && self.session.local {
                self.list_if_due();
            }
            if let Some(reply) = reply
                && let Some(end) = self.handle(reply)?
            {
                return Ok(end);
            }
            if let Some(end) = self.observe()? {
                return Ok(end);
            }
            self.note_cpu_times_if_due();
            self.check_link()?;
            if self.sink.has_failed() && !self.ending.is_asked() {
                self.ask_to_end(EndReason::Error)?;
            }
            self.press_on()?;
        }
    }

    /// The next reply; `None` when it is time to look after other things.
    fn next(&mut self) -> Result<Option<StopReply>, Error> {
        if let Some(reply) = self.queue.pop_front() {
            return Ok(Some(reply));
        }
        if let Some(reply) = self.session.wait(Duration::ZERO)? {
            return Ok(Some(reply));
        }
        self.sink.flush_if_due();
        let wait = self.ending.next_step().unwrap_or(TICK).min(TICK);
        let mut fds = vec![PollFd::new(self.session.client.as_fd(), PollFlags::POLLIN)];
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
            self.take_request();
            self.ask_to_end(EndReason::Interrupted)?;
        } else if ready == Ok(0) {
            self.threads
                .refresh_local_names(&mut self.sink, &self.session);
        }
        Ok(None)
    }

    fn take_request(&mut self) {
        if let Some(stop) = &self.stop {
            let mut bytes = [0; 64];
            let _ = nix::unistd::read(stop, &mut bytes);
        }
    }

    /// Acts on one reply and, unless it was the last, lets the program run on.
    pub(super) fn handle(&mut self, reply: StopReply) -> Result<Option<(Ended, EndReason)>, Error> {
        match reply {
            StopReply::Stopped {
                signal,
                thread,
                reason,
                registers,
                memory,
                ..
            } => {
                self.stack_sent = memory
                    .into_iter()
                    .map(|(address, bytes)| Chunk { address, bytes })
                    .collect();
                let thread = match thread.or_else(|| self.threads.ids().first().copied()) {
                    Some(thread) => thread,
                    None => return self.resume().map(|()| None),
                };
                return self.on_stop(signal, thread, reason, registers);
            }
            StopReply::ThreadExited { code, thread } => {
                self.threads
                    .exited(&mut self.sink, thread.tid, Some(code), true);
                self.stepping.remove(&thread.tid);
                self.resume()?;
            }
            StopReply::Exited { code, .. } => {
                let time_ns = self.sink.now_ns();
                self.sink.record(ProcessEnded {
                    time_ns,
                    exit_code: Some(code),
                    signal: None,
                });
                return Ok(Some((Ended::Exited(code), self.ending.reason())));
            }
            StopReply::Terminated { signal, .. } => {
                let linux = signals::to_linux(signal).unwrap_or(signal);
                if i32::from(linux) == nix::libc::SIGKILL && self.places.jumps > 0 {
                    self.sink.note(
                        Severity::Warning,
                        "the program was killed by SIGKILL: hits of its last 10 milliseconds that waited in its memory may be missing",
                    );
                }
                let time_ns = self.sink.now_ns();
                self.sink.record(ProcessEnded {
                    time_ns,
                    exit_code: None,
                    signal: Some(linux.into()),
                });
                return Ok(Some((Ended::Terminated(linux), self.ending.reason())));
            }
            _ => {
                self.sink.note(
                    Severity::Warning,
                    "the server says that no thread is left to run",
                );
                return Ok(Some((Ended::Detached, EndReason::ProgramEnded)));
            }
        }
        Ok(None)
    }

    fn on_stop(
        &mut self,
        signal: u8,
        thread: ThreadId,
        reason: StopReason,
        expedited: Vec<(u32, Vec<u8>)>,
    ) -> Result<Option<(Ended, EndReason)>, Error> {
        match reason {
            StopReason::ThreadCreated => {
                self.threads
                    .seen(&mut self.sink, &mut self.session, thread, false);
                self.resume()?;
                return Ok(None);
            }
            StopReason::Exec(path) => {
                self.on_exec(thread, &path)?;
                self.resume()?;
                return Ok(None);
            }
            StopReason::Fork(child) | StopReason::VFork(child) => {
                self.on_fork(thread, child)?;
                self.resume()?;
                return Ok(None);
            }
            StopReason::VForkDone
            | StopReason::Library
            | StopReason::SyscallEntry(_)
            | StopReason::SyscallReturn(_) => {
                self.resume()?;
                return Ok(None);
            }
            _ => {}
        }
        if signal == SIGTRAP {
            let registers = self.known_registers(thread, &expedited)?;
            let pc = self
                .session
                .abi
                .pc(&registers)
                .map(|pc| self.session.abi.code_address(pc));
            let here = pc.map_or(&[][..], |pc| self.probes.at(pc)).to_vec();
            if let (Some(pc), Some(first)) = (pc, here.first()) {
                let breakpoint = first.breakpoint;
                self.stepping.remove(&thread.tid);
                for planted in here {
                    match planted.purpose {
                        Purpose::Linker => self.update_modules()?,
                        Purpose::Name => self.on_name(thread, registers.clone())?,
                        Purpose::Exec => {}
                        Purpose::Resolver => self.on_resolver(pc, &registers)?,
                        // The server noted that by itself; it is another one that wanted the stop.
                        Purpose::Probe { kind, .. }
                            if kind.is_of_calls() && planted.tracepoint.is_some() => {}
                        Purpose::Probe { id, kind } => {
                            self.on_probe(thread, id, kind, pc, registers.clone())?
                        }
                    }
                }
                self.emulator_stop.stopped_elsewhere();
                if !self.emulator_stop.is_under_way()
                    && self.ending.can_end_here(self.session.own_stub)
                {
                    return self.stopped_for_end();
                }
                self.list_if_due();
                self.pass(thread, breakpoint)?;
                return Ok(None);
            }
            if self.stepping.remove(&thread.tid) {
                self.resume()?;
                return Ok(None);
            }
        }
        let stopped_emulator = self.emulator_stop.takes(signal);
        if signal == SIGINT || signal == 0 || signal == 17 || stopped_emulator {
            let is_answer = self.ending.takes_answer();
            if self.ending.is_awaited() {
                return self.stopped_for_end();
            }
            if is_answer {
                if self.ending.is_asked() {
                    self.inspect_for_end(None, true)?;
                }
                self.resume()?;
                return Ok(None);
            }
        }
        if signal == SIGINT {
            self.ending.program_was_interrupted();
        }
        if ![0, SIGTRAP].contains(&signal) && self.is_fatal(signal) {
            self.inspect_for_end(Some(signal), true)?;
        }
        self.resume_with(thread, (signal != 0).then_some(signal))?;
        Ok(None)
    }

    /// Servers that do not report thread exits are asked now and then, while the program stands
    /// anyway; all servers but a local one are asked for names.
    fn list_if_due(&mut self) {
        if self.threads_run_on || self.listed.elapsed() < TICK {
            return;
        }
        self.listed = Instant::now();
        if self.session.local {
            self.threads
                .refresh_local_names(&mut self.sink, &self.session);
        } else {
            self.threads
                .compare(&mut self.sink, &mut self.session, false);
        }
    }

    /// A forked child is a process of its own; it is let go without our breakpoints.
    fn on_fork(&mut self, parent: ThreadId, child: ThreadId) -> Result<(), Error> {
        // Our own stub reports processes with its thread notices.
        if !self.session.client.features().has("QUnspoolThreads") {
            let started = ProcessStarted {
                time_ns: self.sink.now_ns(),
                pid: child.pid.unwrap_or(child.tid),
                creator_tid: Some(parent.tid),
                executable: String::new(),
            };
            self.sink.record(started);
        }
        let client = &mut self.session.client;
        // The child's memory holds a copy of our breakpoints; asking for its registers selects it.
        if client.registers(child).is_ok() {
            for breakpoint in self.probes.breakpoints() {
                let _ = client.remove_breakpoint(breakpoint);
            }
        }
        if let Some(pid) = child.pid {
            client.raw(format!("D;{pid:x}").as_bytes())?;
        }
        Ok(())
    }

    /// The registers that came with a stop, or all of them if not even the pc did.
    fn known_registers(
        &mut self,
        thread: ThreadId,
        expedited: &[(u32, Vec<u8>)],
    ) -> Result<Registers, Error> {
        let registers = self.session.abi.expedited(expedited);
        if self.session.abi.pc(&registers).is_some() {
            return Ok(registers);
        }
        Ok(self.session.client.registers(thread)?)
    }

    /// Where `thread` stands after `reply`.
    pub(super) fn pc_of(
        &mut self,
        thread: ThreadId,
        reply: &StopReply,
    ) -> Result<Option<u64>, Error> {
        let StopReply::Stopped { registers, .. } = reply else {
            return Ok(None);
        };
        let registers = self.known_registers(thread, registers)?;
        Ok(self
            .session
            .abi
            .pc(&registers)
            .map(|pc| self.session.abi.code_address(pc)))
    }

    /// Lets all threads run.
    pub(super) fn resume(&mut self) -> Result<(), Error> {
        if self.session.observes {
            return Ok(());
        }
        Ok(self.session.client.resume(&[(Action::Continue, None)])?)
    }

    /// Lets all threads run, `thread` with a signal.
    pub(super) fn resume_with(
        &mut self,
        thread: ThreadId,
        signal: Option<u8>,
    ) -> Result<(), Error> {
        match signal {
            None => self.resume(),
            Some(signal) => {
                let with_signal = (Action::ContinueWithSignal(signal), Some(thread));
                Ok(self
                    .session
                    .client
                    .resume(&[with_signal, (Action::Continue, None)])?)
            }
        }
    }
}
