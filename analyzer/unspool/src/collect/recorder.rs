//! The parts of a recording, and the operations that need several of them.
//!
//! Each part owns its state; this file passes one part to another. The event loop above it decides
//! when the program runs.

use unspool_capture::{EndReason, Event, ProbeKind, Severity};
use unspool_rsp::{Client, Notice, Registers, StopReply, ThreadId, TraceFrame};

use super::calls::Calls;
use super::calls::call_hits::CallHit;
use super::cpu_times::CpuSampling;
use super::end_inspection::EndInspection;
use super::error::Error;
use super::hits::{FrameHit, HitReader, snapshot_of};
use super::launch;
use super::memory;
use super::modules::Modules;
use super::notices::Notices;
use super::options::{KernelRecords, Options};
use super::place::Purpose;
use super::planter::Planter;
use super::probes::Planted;
use super::program::Program;
use super::qemu_threads;
use super::samples::SampleRecording;
use super::schedule::ScheduleRecording;
use super::session::{SIGINT, SIGTRAP, Session};
use super::sink::Sink;
use super::stack::FIRST;
use super::thread_reader::ThreadReader;
use super::threads::Threads;
use super::tracepoints::{THREAD, TIME};

/// gdb's numbers of Unix signals; its other numbers are exceptions of other systems.
const SIGNALS: std::ops::RangeInclusive<u8> = 1..=142;
/// The kernel keeps 15 bytes of a thread's name; the C library refuses longer names.
const MAX_NAME: usize = 15;

/// The parts of one recording.
pub(super) struct Recorder {
    pub(super) session: Session,
    pub(super) sink: Sink,
    pub(super) program: Program,
    pub(super) planter: Planter,
    pub(super) hits: HitReader,
    pub(super) threads: Threads,
    pub(super) notices: Notices,
    pub(super) cpu: CpuSampling,
    pub(super) schedule: ScheduleRecording,
    pub(super) wanted: KernelRecords,
    pub(super) samples: SampleRecording,
    pub(super) end_inspection: EndInspection,
}

/// A probe hit whose thread is stopped.
pub(super) struct StopHit {
    pub(super) thread: ThreadId,
    pub(super) id: u32,
    pub(super) kind: ProbeKind,
    pub(super) pc: u64,
    /// The registers that came with the stop reply.
    pub(super) registers: Registers,
}

impl Recorder {
    pub(super) fn new(session: Session, sink: Sink, options: Options) -> Self {
        // Without an option the server keeps its own budget.
        let own_budget = session.client.features().value("UnspoolBudget");
        let lossless = options.budget.as_deref().or(own_budget) == Some("none");
        let calls = Calls::new(options.calls);
        let modules = Modules::new(options.store, &session.abi);
        Self {
            program: Program::new(modules, options.exec),
            planter: Planter::new(&session, options.probes, calls, lossless),
            session,
            sink,
            hits: HitReader::default(),
            threads: Threads::new(),
            notices: Notices::default(),
            cpu: CpuSampling::new(),
            schedule: ScheduleRecording::default(),
            wanted: options.kernel,
            samples: SampleRecording::default(),
            end_inspection: EndInspection::new(options.analysis),
        }
    }

    /// Plants the first probes in a program that is stopped since `stop`, and reads earlier
    /// threads.
    pub(super) fn prepare(&mut self, stop: &StopReply) -> Result<(), Error> {
        let executable = self.program.identify(&mut self.session)?;
        qemu_threads::detect(&mut self.session, &mut self.sink, stop);
        self.session.tells_creators = self.session.client.thread_log(FIRST / 2)?;
        self.sink
            .record(self.session.target(executable.path.clone()));
        self.threads.exact = self.session.tells_creators
            || (self.session.can_report_threads() && self.session.client.thread_events(true)?);
        if !self.session.observes {
            let silent: Vec<u8> = SIGNALS
                .filter(|signal| ![SIGTRAP, SIGINT].contains(signal))
                .collect();
            self.session.client.pass_signals(&silent)?;
        }
        self.session.stops.before_fatal = self.session.client.stop_before_fatal_signals()?;
        let fresh = self.session.launched || executable.has_not_begun(&mut self.session, stop)?;
        self.threads
            .compare(&mut self.sink, &mut self.session, !fresh);
        for thread in self.threads.ids() {
            self.threads.start(thread.tid);
        }
        if self.session.launched {
            self.note_lost_privilege(&executable.path);
        }
        if self.session.local && self.session.own_stub {
            self.notices.clock.share(self.sink.now_ns());
        }
        let (session, sink) = (&mut self.session, &mut self.sink);
        // First, because the schedule takes all memory that the kernel grants.
        self.samples.begin(session, sink, self.wanted.cpu)?;
        self.program.begin(session, sink, executable);
        let wanted = (self.wanted.processes, self.program.hides_creations());
        self.schedule.begin(session, sink, wanted)?;
        // Last, because it may use the last descriptors and the last memory.
        self.samples.begin_off_cpu(session, sink)?;
        self.planter.begin_trace(&mut self.session)?;
        self.plant_program()?;
        if !fresh {
            self.read_earlier_threads()?;
        }
        Ok(())
    }

    /// Reads the threads that were created before the recording: their stacks show what they run.
    /// The first thread is left out, because it runs the program itself.
    fn read_earlier_threads(&mut self) -> Result<(), Error> {
        let all = self.threads.ids();
        let mut threads = all.clone();
        threads.retain(|thread| Some(thread.tid) != self.session.pid);
        self.thread_reader().read_threads(&threads)?;
        if !self.planter.probes.has(ProbeKind::FutexWait) {
            return Ok(());
        }
        for waiting in self.thread_reader().registers_of(&all)? {
            if self.session.abi.waits_at(&waiting.registers).is_some() {
                let (session, sink) = (&mut self.session, &mut self.sink);
                let modules = &self.program.modules;
                self.hits
                    .on_wait(session, sink, modules, &self.planter, waiting);
            }
        }
        Ok(())
    }

    fn thread_reader(&mut self) -> ThreadReader<'_> {
        let modules = &self.program.modules;
        ThreadReader::new(&mut self.session, &mut self.sink, modules, &self.threads)
    }

    /// Plants the probes that are possible in the first modules.
    fn plant_program(&mut self) -> Result<(), Error> {
        let (session, sink) = (&mut self.session, &mut self.sink);
        self.planter.plant_linker(session, sink, &self.program)?;
        if self.program.is_dynamic() {
            return self.update_modules();
        }
        self.forget_paths();
        let (session, sink) = (&mut self.session, &mut self.sink);
        let module = self.program.executable_module;
        (self.planter).plant_in(session, sink, &self.program, &[module])?;
        self.program.add_stub_code(session, sink)?;
        (self.planter).check_static(sink, &self.program, self.schedule.sees_creations())
    }

    /// Reads the dynamic linker's list of modules, unless the linker is about to change it.
    pub(super) fn update_modules(&mut self) -> Result<(), Error> {
        let Some(change) = self.program.update(&mut self.session, &mut self.sink) else {
            return Ok(());
        };
        self.forget_paths();
        let (session, sink) = (&mut self.session, &mut self.sink);
        self.planter.unmapped(session, &change.unmapped);
        (self.planter).plant_in(session, sink, &self.program, &change.plant)?;
        self.program.add_stub_code(session, sink)?;
        match change.is_first {
            true => self.planter.check_dynamic(session, sink, &self.program),
            false => Ok(()),
        }
    }

    /// Forgets call paths and stacks by their addresses, because modules have changed.
    fn forget_paths(&mut self) {
        self.hits.calls.forget_paths();
        self.samples.forget_stacks();
    }

    /// The process has executed another program, which has none of the old probes and modules.
    pub(super) fn on_exec(&mut self, tid: u64, path: &str) -> Result<(), Error> {
        let text = format!("the process executed another program: {path}");
        self.sink.note(Severity::Info, text);
        let (session, sink) = (&mut self.session, &mut self.sink);
        self.threads.replaced(sink, session, tid);
        self.hits.creations.clear();
        self.schedule.on_exec();
        self.planter.clear();
        self.program.replaced(&self.session, &mut self.sink);
        self.note_lost_privilege(path);
        let executable = self.program.identify(&mut self.session)?;
        self.planter.begin_trace(&mut self.session)?;
        (self.program).begin(&mut self.session, &mut self.sink, executable);
        match self.plant_program() {
            // The capture also holds the earlier program, so the recording goes on without this
            // one.
            Err(error) if !matches!(&error, Error::Rsp(error) if error.is_fatal()) => {
                self.sink.note(
                    Severity::Error,
                    format!("its threads are not recorded: {error}"),
                );
                Ok(())
            }
            other => other,
        }
    }

    /// Notes that the program runs without a privilege that its file would grant outside a
    /// recording.
    fn note_lost_privilege(&mut self, path: &str) {
        if !self.session.own_stub {
            return;
        }
        if let Some(privilege) = launch::lost_privilege(path.as_ref()) {
            self.sink.note(
                Severity::Warning,
                format!(
                    "the kernel ignored the {privilege} of {path} because of the recording, so the \
                     program runs without that privilege; record it as root"
                ),
            );
        }
    }

    /// Records a probe hit whose thread is stopped.
    pub(super) fn on_probe(&mut self, hit: StopHit) -> Result<(), Error> {
        let StopHit {
            thread, id, kind, ..
        } = hit;
        let (session, sink) = (&mut self.session, &mut self.sink);
        self.threads.seen(sink, session, thread, false);
        if kind == ProbeKind::Start && !self.threads.start(thread.tid) {
            // A thread that has already started calls the function like any other.
            return Ok(());
        }
        let time_ns = sink.now_ns();
        let mut event = Event {
            time_ns,
            tid: thread.tid,
            probe: id,
            ..Event::default()
        };
        if kind == ProbeKind::Create {
            return self.on_create(thread, hit.registers, event);
        }
        let registers = session.all_registers(thread, hit.registers)?;
        if kind.is_of_calls() {
            let Some(site) = self.planter.calls.site(id) else {
                return Ok(());
            };
            let hit = CallHit {
                tid: thread.tid,
                probe: id,
                time_ns,
                site,
            };
            let (calls, walker) = (&mut self.hits.calls, &mut self.hits.walker);
            return calls.on_stop(session, sink, &self.program.modules, walker, hit, registers);
        }
        if kind == ProbeKind::Start {
            self.hits.on_start(session, hit.pc, &registers, &mut event);
        } else {
            event.args = session.abi.args(&registers, 1).unwrap_or_default();
            event.snapshot = Some(snapshot_of(&registers));
        }
        sink.record_event(event);
        Ok(())
    }

    /// Records a creation. Plants a probe at the start routine unless the server reports creators.
    fn on_create(
        &mut self,
        thread: ThreadId,
        registers: Registers,
        event: Event,
    ) -> Result<(), Error> {
        let (session, sink) = (&mut self.session, &mut self.sink);
        let modules = &self.program.modules;
        let mut hit = self
            .hits
            .begin_creation(session, modules, thread, registers, event)?;
        let creation = hit.creation(&session.abi);
        let creation = creation.filter(|_| !session.tells_creators);
        if let Some((creation, thumb)) = creation {
            let creations = &mut self.hits.creations;
            if session.stops.one_thread {
                let threads = &mut self.threads;
                let handles = qemu_threads::record_newcomers(session, sink, threads, creations)?;
                hit.event.reads.extend(handles);
                creations.add(creation);
            } else {
                let handle = creations.add_reading(session, creation);
                hit.event.reads.extend(handle);
                let routine = creation.routine;
                self.planter
                    .watch_start(session, sink, modules, routine, thumb)?;
            }
        }
        let event = self.hits.finish_creation(session, modules, hit);
        sink.record_event(event);
        Ok(())
    }

    /// Records the name that a thread is about to give itself.
    pub(super) fn on_name(&mut self, thread: ThreadId, expedited: Registers) -> Result<(), Error> {
        let registers = self.session.all_registers(thread, expedited)?;
        let abi = &self.session.abi;
        let Some(name) = abi.args(&registers, 2).map(|args| args[1]) else {
            return Ok(());
        };
        let own = abi.is_own_handle(&registers);
        let name = memory::string(&mut self.session.client, name);
        if let Some(name) = name.filter(|name| own && name.len() <= MAX_NAME) {
            self.threads.rename(&mut self.sink, thread.tid, name);
        }
        Ok(())
    }

    /// Plants probes in the function that a resolver is about to return.
    pub(super) fn on_resolver(&mut self, pc: u64, registers: &Registers) -> Result<(), Error> {
        let (session, sink) = (&mut self.session, &mut self.sink);
        self.planter
            .on_resolver(session, sink, &self.program, pc, registers)
    }

    fn on_resolver_held(&mut self, tid: u64, pc: u64) -> Result<(), Error> {
        let pid = self.session.pid;
        let read = self.session.client.stacks(&[ThreadId { pid, tid }], 0)?;
        let registers = read.into_iter().next().and_then(|one| one.registers);
        let registers = registers.map(|registers| self.session.abi.traced(&registers));
        registers.map_or(Ok(()), |registers| self.on_resolver(pc, &registers))
    }

    /// Handles a thread that waits for the observer, and releases it.
    pub(super) fn on_held(&mut self, tid: u64, at: Option<u64>) -> Result<(), Error> {
        let here = at.map(|at| self.planter.probes.at(self.session.abi.code_address(at)));
        let here = here.unwrap_or_default().to_vec();
        // A wait elsewhere follows an exec or the loading of a file.
        let is_probe = |planted: &Planted| matches!(planted.purpose, Purpose::Probe { .. });
        let follows = !here.iter().any(is_probe);
        for planted in here {
            match planted.purpose {
                Purpose::Linker => self.update_modules()?,
                Purpose::Resolver => self.on_resolver_held(tid, planted.breakpoint.address)?,
                Purpose::Probe {
                    id,
                    kind: ProbeKind::Create,
                } => {
                    let (session, sink) = (&mut self.session, &mut self.sink);
                    let modules = &self.program.modules;
                    self.hits.on_long_stack(session, sink, modules, tid, id)?;
                }
                // An exec has its own notice.
                _ => {}
            }
        }
        let waited = self.session.client.release(tid)?;
        if !waited && follows {
            self.sink.note(
                Severity::Warning,
                "the program executed or loaded a file, and went on before the probes in that \
                 file were set: this machine or the connection is too slow or too busy. Threads \
                 that the program created right after that may be missing",
            );
        }
        Ok(())
    }

    /// Handles the events that the server has reported without a stop.
    pub(super) fn take_notices(&mut self) {
        if !self.session.tells_creators {
            return;
        }
        let batch = self.session.client.take_notices();
        self.notices.begin(self.sink.now_ns(), &batch);
        for notice in batch {
            match notice {
                Notice::Thread {
                    notice,
                    sent_ns,
                    since,
                } => {
                    let clock = &mut self.notices.clock;
                    let sent_ns = clock.sent(sent_ns, since);
                    let pid = self.session.pid;
                    self.threads
                        .on_notice(&mut self.sink, pid, notice, sent_ns, clock);
                }
                Notice::Frame(frame) => self.on_frame(frame),
                Notice::Samples { samples, since, .. } => {
                    let (abi, modules) = (&self.session.abi, &self.program.modules);
                    let unwinding = (abi, modules, &mut self.hits.walker);
                    let clock = &self.notices.clock;
                    self.samples
                        .record(&mut self.sink, unwinding, clock, samples, since);
                }
                notice @ (Notice::Schedule { .. } | Notice::Processes { .. }) => {
                    let clock = &self.notices.clock;
                    let (sink, program) = (&mut self.sink, (&self.session, &self.program.modules));
                    self.schedule.record(program, sink, clock, notice);
                }
                other => {
                    let probe_of = |tracepoint| self.planter.probe_of(tracepoint);
                    self.notices.take(&mut self.sink, other, probe_of);
                }
            }
        }
    }

    /// Makes the server send the rest of the schedule and of the samples. The program is stopped,
    /// or the server accepts packets while it runs.
    pub(super) fn end_kernel_records(&mut self) -> Result<(), Error> {
        if self.samples.is_on() {
            self.session.client.end_samples()?;
            self.take_notices();
            self.samples.close(&mut self.sink);
        }
        if self.schedule.is_on() {
            self.session.client.end_schedule()?;
            self.take_notices();
            self.schedule.close(&mut self.session, &mut self.sink);
        }
        Ok(())
    }

    /// Records a hit that the server recorded by itself.
    fn on_frame(&mut self, frame: TraceFrame) {
        let Some(planted) = self.planter.probes.traced(frame.tracepoint) else {
            return;
        };
        let value = |index| frame.variable(Client::trace_variable(index));
        let (Some(time), Some(tid)) = (value(TIME), value(THREAD)) else {
            return;
        };
        let clock = &mut self.notices.clock;
        let sent_ns = clock.sent(Some(time.cast_unsigned()), frame.since);
        let time_ns = clock.time(sent_ns, std::time::Duration::ZERO);
        let tid = tid.cast_unsigned();
        let (session, sink) = (&mut self.session, &mut self.sink);
        if session.local {
            let pid = session.pid;
            self.threads
                .seen(sink, session, ThreadId { pid, tid }, false);
        }
        let abi = &session.abi;
        let modules = &self.program.modules;
        match planted.purpose {
            Purpose::Probe { id, kind } if kind.is_of_calls() => {
                let Some(site) = self.planter.calls.site(id) else {
                    return;
                };
                let hit = CallHit {
                    tid,
                    probe: id,
                    time_ns,
                    site,
                };
                let (calls, walker) = (&mut self.hits.calls, &mut self.hits.walker);
                calls.on_frame(abi, sink, modules, walker, hit, frame);
            }
            Purpose::Probe { id, kind } => {
                let hit = FrameHit {
                    tid,
                    id,
                    kind,
                    time_ns,
                    registers: abi.traced(&frame.registers),
                };
                let event = self.hits.on_frame(abi, modules, hit, frame.memory);
                sink.record_event(event);
            }
            Purpose::Name => {
                let registers = abi.traced(&frame.registers);
                let name = frame.memory.into_iter().next().and_then(|(_, bytes)| {
                    let end = bytes.iter().position(|byte| *byte == 0)?;
                    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
                });
                if let Some(name) = name.filter(|_| abi.is_own_handle(&registers)) {
                    // Use the time of the hit, since the thread may have ended meanwhile.
                    self.threads.renamed_at(sink, tid, time_ns, name);
                }
            }
            _ => {}
        }
    }

    /// Removes our breakpoints from a forked child, which is a process of its own, and detaches
    /// from it.
    pub(super) fn release_fork(&mut self, child: ThreadId) -> Result<(), Error> {
        let client = &mut self.session.client;
        // The child's memory has copies of our breakpoints. Reading its registers selects the
        // child.
        if client.registers(child).is_ok() {
            for breakpoint in self.planter.probes.breakpoints() {
                let _ = client.remove_breakpoint(breakpoint);
            }
        }
        if let Some(pid) = child.pid {
            client.raw(format!("D;{pid:x}").as_bytes())?;
        }
        Ok(())
    }

    /// Records processor times and short stops, if a sample is due.
    pub(super) fn sample_if_due(&mut self) {
        if self.cpu.is_due() {
            self.sample();
            self.notices.record_short_stops(&mut self.sink);
        }
    }

    /// Records the threads' waits in the kernel, and processor times if there is no schedule. Only
    /// a recording of calls needs them.
    fn sample(&mut self) {
        let (session, sink) = (&mut self.session, &mut self.sink);
        if !self.planter.calls.are_wanted() {
            self.cpu.skip();
        } else if self.schedule.is_on() {
            self.cpu.sample_waits(session, sink, &mut self.schedule);
        } else {
            let clock = &self.notices.clock;
            self.cpu.sample(session, sink, &self.threads, clock);
        }
    }

    /// Reads all threads before the recording ends or `signal` (gdb's number) ends the program.
    pub(super) fn inspect_for_end(
        &mut self,
        signal: Option<u8>,
        is_stopped: bool,
    ) -> Result<(), Error> {
        let modules = &self.program.modules;
        let mut reader =
            ThreadReader::new(&mut self.session, &mut self.sink, modules, &self.threads);
        self.end_inspection.run(&mut reader, signal, is_stopped)
    }

    /// The first half of an inspection, after which the program may run. True if it succeeded.
    pub(super) fn begin_inspection(&mut self) -> Result<bool, Error> {
        let modules = &self.program.modules;
        let mut reader =
            ThreadReader::new(&mut self.session, &mut self.sink, modules, &self.threads);
        self.end_inspection.begin(&mut reader, None, true)?;
        Ok(self.end_inspection.has_begun())
    }

    /// The second half of an inspection.
    pub(super) fn finish_inspection(&mut self) -> Result<(), Error> {
        let modules = &self.program.modules;
        let mut reader =
            ThreadReader::new(&mut self.session, &mut self.sink, modules, &self.threads);
        self.end_inspection.finish(&mut reader)
    }

    /// Records threads that started or ended since the last listing. The program is stopped.
    pub(super) fn list_last_threads(&mut self) -> Result<(), Error> {
        let (session, sink) = (&mut self.session, &mut self.sink);
        if !session.stops.one_thread {
            self.threads.compare(sink, session, false);
            return Ok(());
        }
        let creations = &self.hits.creations;
        qemu_threads::record_newcomers(session, sink, &mut self.threads, creations).map(drop)
    }

    /// Records the remaining data at the end, and notes missing data. Returns the error that makes
    /// the recording incomplete, if there is one.
    pub(super) fn record_rest(&mut self, reason: EndReason) -> Option<Error> {
        self.take_notices();
        if self.session.local {
            self.sample();
        }
        if reason != EndReason::ConnectionLost {
            self.samples.close(&mut self.sink);
            self.schedule.close(&mut self.session, &mut self.sink);
        }
        self.notices.record_short_stops(&mut self.sink);
        let hook_hits = self.hits.calls.hook_hits();
        self.planter.note(&self.session, &mut self.sink, hook_hits);
        self.hits.walker.note_unusable(&mut self.sink)
    }
}
