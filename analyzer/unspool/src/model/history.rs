//! Turns records into threads, with their creations and ends.
//!
//! Records are read once, in order. They may be incomplete (a cut capture, dropped events, a server
//! that does not report exits), doubled or late, and thread ids are reused. So no record is
//! required, and each guess becomes a note.

use std::collections::HashMap;

use unspool_capture::{
    Capture, EndReason, Event, NoteTopic, Probe, ProbeKind, ProcessStarted, Record, SNAPSHOT_PROBE,
    Severity, Source, ThreadEnd,
};

use super::backtrace::{Frames, base_name};
use super::thread::{Creation, Ending, Thread};
use super::{Model, Note, Process, Processes, ProgramEnd, Recording, Target, Topic, origin};
use crate::platform::Architecture;
use crate::primitives;

mod creation;
mod handle;
mod joining;
mod missing;
mod scheduled;

use creation::Pending;
use handle::Handles;

/// Minor version of the first captures that distinguish threads which the exit of their process
/// ended from threads that ended by themselves.
const EXITS_TOLD_SINCE: u32 = 19;

/// Reads all records of a capture.
pub(super) fn read(capture: &Capture, frames: &mut dyn Frames) -> Model {
    let added = scheduled::missing(&capture.records, capture.target.pid);
    let mut history = History::new(capture, frames);
    for what in in_time(capture, &added) {
        match what {
            What::Record(at) => history.record(at, &capture.records[at]),
            What::Added(record) => history.record(0, record),
            What::Call(event) => history.call(event),
        }
    }
    history.counts.skipped(&capture.calls);
    history.finish()
}

/// An element of a history.
enum What<'a> {
    /// The record with this index.
    Record(usize),
    /// A record that is derived from the schedule.
    Added(&'a Record),
    /// An event of a call, which is not among the records; it proves that its thread was alive.
    Call(&'a Event),
}

/// Returns all elements in order of time. An element without a time stays behind its predecessor.
fn in_time<'a>(capture: &'a Capture, added: &'a [Record]) -> Vec<What<'a>> {
    let time_of = |record: &Record| match record {
        Record::ThreadSeen(seen) => seen.time_ns,
        Record::ThreadName(named) => named.time_ns,
        Record::ThreadExited(exited) => exited.time_ns,
        Record::Event(event) => event.time_ns,
        Record::ProcessStarted(started) => started.time_ns,
        Record::ProcessEnded(ended) => ended.time_ns,
        _ => 0,
    };
    let mut last = 0;
    let mut order: Vec<(u64, usize, What<'_>)> = Vec::with_capacity(capture.records.len());
    // At equal times, added records come first.
    order.extend(
        added
            .iter()
            .map(|record| (time_of(record), 0, What::Added(record))),
    );
    for (at, record) in capture.records.iter().enumerate() {
        let time = time_of(record);
        if time != 0 {
            last = time;
        }
        order.push((last, at, What::Record(at)));
    }
    let calls = capture.calls.ends.iter();
    order.extend(calls.map(|(at, event)| (event.time_ns, *at, What::Call(event))));
    order.sort_by_key(|(time, at, _)| (*time, *at));
    order.into_iter().map(|(.., what)| what).collect()
}

struct History<'a> {
    capture: &'a Capture,
    frames: &'a mut dyn Frames,
    thumb: bool,
    pointer: usize,
    /// A thread's handle is its thread pointer.
    pointer_is_handle: bool,
    musl: bool,
    executable: String,
    started_as: String,
    threads: Vec<Thread>,
    /// Per thread, data that is only needed while records are read.
    traces: Vec<Trace>,
    /// The thread that has each TID now.
    current: HashMap<u64, usize>,
    /// Threads that the exit of the process ended, unless it executes another program.
    killed_by_exit: Vec<usize>,
    /// Ends that were reported since the last event.
    last_exits: Vec<(u64, usize)>,
    /// The thread that had each TID last.
    last: HashMap<u64, usize>,
    probes: HashMap<u32, &'a Probe>,
    pending: Vec<Pending>,
    handles: Handles,
    recording: Recording,
    processes: Vec<Process>,
    notes: Vec<Note>,
    counts: missing::Counts,
}

#[derive(Default)]
struct Trace {
    /// A Start event was recorded.
    started: bool,
    /// True if there was a ThreadSeen record; otherwise only events prove the thread.
    seen: bool,
    /// Its creator, if the server or the kernel reported it.
    creator: Option<usize>,
    /// The thread that its last join call waited for.
    joining: Option<usize>,
    /// The handle and the probe of its last join call.
    last_join: Option<(u64, u32)>,
    gone: bool,
    /// Its end was not reported.
    concluded: bool,
}

impl<'a> History<'a> {
    fn new(capture: &'a Capture, frames: &'a mut dyn Frames) -> History<'a> {
        let platform = Architecture::by_gdb_name(&capture.target.arch);
        let source = match capture.header.source() {
            Source::Unspecified => None,
            source => Some(source),
        };
        let musl = frames.is_musl();
        let header = &capture.header;
        let traces = header.traces_functions;
        History {
            capture,
            frames,
            thumb: platform.is_some_and(|platform| platform.has_code_bit),
            pointer: platform.map_or(8, |platform| platform.arch.address_size()),
            pointer_is_handle: platform
                .is_some_and(|platform| platform.thread_descriptor_size == 0),
            musl,
            executable: capture.target.executable.clone(),
            started_as: String::new(),
            threads: Vec::new(),
            traces: Vec::new(),
            current: HashMap::new(),
            killed_by_exit: Vec::new(),
            last_exits: Vec::new(),
            last: HashMap::new(),
            probes: HashMap::new(),
            pending: Vec::new(),
            handles: Handles::default(),
            recording: Recording {
                product: capture.header.product.clone(),
                command: capture.header.command.clone(),
                source,
                start_unix_ns: capture.header.start_unix_ns,
                cut: capture.cut.is_some(),
                traces_functions: traces.unwrap_or_else(|| has_option(&header.command, "--trace")),
                ..Recording::default()
            },
            processes: Vec::new(),
            notes: Vec::new(),
            counts: missing::Counts::default(),
        }
    }

    fn record(&mut self, at: usize, record: &'a Record) {
        match record {
            Record::Header(_)
            | Record::Target(_)
            | Record::ModuleUnloaded(_)
            | Record::Memory(_)
            | Record::ThreadState(_)
            | Record::Standstill(_)
            | Record::Stood(_)
            | Record::CpuTimes(_)
            | Record::Inspection(_)
            | Record::ShortStops(_)
            | Record::Resolution(_)
            | Record::Blocked(_)
            | Record::Schedule(_)
            | Record::Processes(_)
            | Record::Samples(_) => {}
            Record::Gap(gap) => {
                self.clock(gap.time_ns);
                self.recording.gaps_are_placed = true;
            }
            Record::ModuleLoaded(module) => {
                self.clock(module.time_ns);
                let killed = std::mem::take(&mut self.killed_by_exit);
                // After an exec, the new program's modules follow the old ones.
                if module.executable && !module.path.is_empty() {
                    self.executed(at, module.time_ns, killed);
                    self.executable.clone_from(&module.path);
                    self.started_as.clone_from(&module.started_as);
                }
            }
            Record::ThreadSeen(seen) => {
                self.clock(seen.time_ns);
                let index = match seen.creator_tid {
                    Some(_) => self.newborn(seen.tid, seen.time_ns),
                    None => self.thread(seen.tid, seen.time_ns),
                };
                self.traces[index].seen = true;
                if let Some(creator) = seen.creator_tid {
                    self.told(index, creator, seen.thread_pointer);
                }
                let thread = &mut self.threads[index];
                if !seen.name.is_empty() {
                    thread.name.clone_from(&seen.name);
                }
                if seen.existed_before && thread.creation == Creation::Unseen {
                    thread.creation = Creation::Before;
                }
            }
            Record::ThreadName(named) => {
                self.clock(named.time_ns);
                if let Some(&index) = self.current.get(&named.tid)
                    && !named.name.is_empty()
                {
                    self.threads[index].name.clone_from(&named.name);
                }
            }
            Record::ThreadExited(exited) => {
                self.clock(exited.time_ns);
                let told = exited.by() != ThreadEnd::Unspecified;
                self.recording.kills_are_told |= told;
                self.recording.exits_are_told |=
                    told && self.capture.header.format_version >= EXITS_TOLD_SINCE;
                // The thread was alive to the end of the program.
                if exited.by() == ThreadEnd::Killed {
                    return;
                }
                self.current.remove(&exited.tid);
                let index = match self.last.get(&exited.tid) {
                    Some(&index) => index,
                    None => {
                        let index = self.thread(exited.tid, exited.time_ns);
                        self.threads[index].started_ns = None;
                        self.current.remove(&exited.tid);
                        index
                    }
                };
                self.gone(index, exited.time_ns, exited.exact);
                self.traces[index].concluded = false;
                if exited.by() == ThreadEnd::KilledByExit {
                    self.killed_by_exit.push(index);
                    return;
                }
                if exited.exact {
                    self.last_exits.push((exited.time_ns, index));
                }
                // While the program runs, a thread leaves a join only when the join is done.
                self.joins_returned(index, exited.time_ns);
            }
            Record::Probe(probe) => {
                self.recording.has_hook_calls |= probe.kind() == ProbeKind::Hook;
                self.probes.insert(probe.id, probe);
                self.counts.create_probes += u64::from(probe.kind() == ProbeKind::Create);
            }
            Record::Event(event) => {
                *self.counts.hits.entry(event.probe).or_default() += 1;
                self.event(at, event);
            }
            Record::Note(note) => {
                self.clock(note.time_ns);
                let topic = match note.topic() {
                    NoteTopic::Recording => Topic::Recording,
                    NoteTopic::Calls => Topic::Calls,
                };
                let made = match note.severity() {
                    Severity::Info => Note::info(&note.text),
                    Severity::Warning => Note::warning(&note.text),
                    Severity::Error => Note::error(&note.text),
                };
                self.notes.push(made.about(topic));
            }
            Record::Dropped(dropped) => {
                self.clock(dropped.time_ns);
                let recording = &mut self.recording;
                recording.dropped = recording.dropped.saturating_add(dropped.count);
                let probe = self.probes.get(&dropped.probe);
                if let Some(probe) = probe.filter(|probe| probe.kind().is_of_calls()) {
                    recording.calls_dropped = recording.calls_dropped.saturating_add(dropped.count);
                    if primitives::is_of_lock(&probe.function) {
                        let locks = &mut recording.lock_calls_dropped;
                        *locks = locks.saturating_add(dropped.count);
                    }
                } else {
                    recording.joins_are_missing = true;
                }
            }
            Record::Missed(missed) => {
                self.clock(missed.time_ns);
                self.counts.missed.insert(missed.probe, *missed);
            }
            Record::ProcessStarted(started) => {
                self.clock(started.time_ns);
                self.process_started(started);
            }
            Record::ProcessEnded(ended) => {
                self.clock(ended.time_ns);
                self.recording.program_end = match (ended.exit_code, ended.signal) {
                    (_, Some(signal)) => Some(ProgramEnd::Signal(signal)),
                    (code, None) => Some(ProgramEnd::Exited(code.unwrap_or(0))),
                };
                self.ended_with_program(ended.time_ns);
                // The first thread's end is the program's own, unless it left before the others.
                let main = self
                    .threads
                    .iter()
                    .position(|t| t.creation == Creation::Main);
                if let Some(main) = main
                    && self.threads[main].ended_ns.is_none()
                {
                    self.threads[main].tid.map(|tid| self.current.remove(&tid));
                    self.gone(main, ended.time_ns, true);
                    let waiting = self.traces[main]
                        .joining
                        .filter(|index| !self.traces[*index].gone);
                    // Most programs exit by main's return, and then its last join has returned,
                    // too. But if ends are known, the awaited thread had not ended.
                    let exited = matches!(self.recording.program_end, Some(ProgramEnd::Exited(_)));
                    if waiting.is_some() && exited && !self.recording.knows_ends() {
                        self.counts.join_assumed = true;
                        self.joins_returned(main, ended.time_ns);
                    }
                }
            }
            // For unwinding only.
            Record::GeneratedCode(_) => {}
            // Of other processes.
            Record::CreationStack(_) => {}
            // Of the schedule.
            Record::FutexPlace(_) | Record::CallSubject(_) | Record::Unchanged(_) => {}
            Record::End(end) => {
                self.clock(end.time_ns);
                let detail = if end.detail.is_empty() {
                    String::new()
                } else {
                    format!(": {}", end.detail.trim_end_matches('.'))
                };
                match end.reason() {
                    EndReason::ConnectionLost => self.notes.push(Note::error(format!(
                        "The connection to the target was lost while recording{detail}. Later \
                         events are missing."
                    ))),
                    EndReason::Error => self.notes.push(Note::error(format!(
                        "The recording failed{detail}. Later events are missing."
                    ))),
                    _ => {}
                }
            }
        }
    }

    /// Notes that another process was started, or that a started process executes a file.
    fn process_started(&mut self, started: &ProcessStarted) {
        let processes = &mut self.processes;
        if started.creator_tid.is_none()
            && let Some(process) = processes.iter_mut().rfind(|p| p.pid == started.pid)
        {
            process.executable.clone_from(&started.executable);
            return;
        }
        let (pid, creator_tid) = (started.pid, started.creator_tid);
        processes.push(Process {
            executable: started.executable.clone(),
            ..Process::new(pid, creator_tid, started.time_ns)
        });
    }

    fn clock(&mut self, time_ns: u64) {
        self.recording.duration_ns = self.recording.duration_ns.max(time_ns);
    }

    /// The thread that has this TID now; an unknown TID begins a new thread.
    fn thread(&mut self, tid: u64, time_ns: u64) -> usize {
        if let Some(&index) = self.current.get(&tid) {
            return index;
        }
        // The thread's end was inferred, but it continues, so the inference was wrong.
        if let Some(&index) = self.last.get(&tid)
            && !self.threads[index].end_exact
            && self.traces[index].concluded
        {
            self.threads[index].ended_ns = None;
            self.traces[index].gone = false;
            self.traces[index].concluded = false;
            self.current.insert(tid, index);
            return index;
        }
        self.begin(tid, time_ns)
    }

    /// A thread that begins now, whichever thread had its TID before.
    fn newborn(&mut self, tid: u64, time_ns: u64) -> usize {
        if let Some(former) = self.current.remove(&tid) {
            self.gone(former, time_ns, false);
            self.counts.ends_missed += 1;
        }
        self.begin(tid, time_ns)
    }

    fn begin(&mut self, tid: u64, time_ns: u64) -> usize {
        let index = self.threads.len();
        let pid = self.capture.target.pid;
        let main = if pid == 0 { index == 0 } else { tid == pid };
        // A process id is not reused while the process lives.
        let main = main && !self.threads.iter().any(|t| t.creation == Creation::Main);
        self.push(Some(tid));
        let thread = &mut self.threads[index];
        thread.started_ns = Some(time_ns);
        if main {
            thread.creation = Creation::Main;
        }
        self.current.insert(tid, index);
        self.last.insert(tid, index);
        index
    }

    fn push(&mut self, tid: Option<u64>) -> usize {
        self.threads.push(Thread::new(tid));
        self.traces.push(Trace::default());
        self.threads.len() - 1
    }

    /// Notes that a thread has ended by this time. The earliest report is the most accurate.
    fn gone(&mut self, index: usize, time_ns: u64, exact: bool) {
        let thread = &mut self.threads[index];
        thread.ended_ns = Some(
            thread
                .ended_ns
                .map_or(time_ns, |before| before.min(time_ns)),
        );
        thread.end_exact |= exact;
        self.traces[index].gone = true;
    }

    fn event(&mut self, at: usize, event: &'a Event) {
        self.clock(event.time_ns);
        self.last_exits.clear();
        if !self.counts.sequence(event.seq) {
            return;
        }
        let kind = match self.probes.get(&event.probe) {
            Some(probe) => probe.kind(),
            None if event.probe == SNAPSHOT_PROBE => ProbeKind::Snapshot,
            None => {
                self.counts.undeclared += 1;
                return;
            }
        };
        if kind == ProbeKind::Start {
            return self.start(at, event);
        }
        let index = self.thread(event.tid, event.time_ns);
        self.recognize(index, event);
        if kind == ProbeKind::Join && self.is_nested_join(index, event) {
            return;
        }
        // A thread that continues after calling join has joined.
        if matches!(
            kind,
            ProbeKind::Create | ProbeKind::Join | ProbeKind::Detach | ProbeKind::Exit
        ) {
            self.joins_returned(index, event.time_ns);
        }
        match kind {
            ProbeKind::Create => self.create(at, event, index),
            ProbeKind::Join => {
                if let Some(&handle) = event.args.first() {
                    self.join(index, handle, event.time_ns);
                }
            }
            ProbeKind::Detach => {
                if let Some(&handle) = event.args.first() {
                    self.detach(handle);
                }
            }
            ProbeKind::Snapshot => {
                if let Some(snapshot) = &event.snapshot {
                    let frames = &mut *self.frames;
                    let stack = frames.backtrace(at, snapshot);
                    let thread = &mut self.threads[index];
                    if thread.function.is_none()
                        && !matches!(thread.creation, Creation::Seen { .. })
                    {
                        thread.function =
                            origin::thread_function(&stack, &mut |avma| frames.start(at, avma));
                    }
                    thread.stack = Some(stack);
                }
            }
            ProbeKind::Exit | ProbeKind::Start | ProbeKind::Unspecified => {}
            // `calls` handles these.
            ProbeKind::Enter
            | ProbeKind::Leave
            | ProbeKind::FutexWait
            | ProbeKind::FutexReturn
            | ProbeKind::FutexWake
            | ProbeKind::Hook => {}
        }
    }

    /// Handles an event that only proves that its thread is alive.
    fn call(&mut self, event: &Event) {
        self.clock(event.time_ns);
        self.last_exits.clear();
        let index = self.thread(event.tid, event.time_ns);
        self.recognize(index, event);
    }

    /// A code address from a pointer. On ARM, bit 0 marks Thumb code and is not part of the
    /// address.
    fn routine(&self, pointer: Option<u64>) -> u64 {
        let pointer = pointer.unwrap_or(0);
        if self.thumb { pointer & !1 } else { pointer }
    }

    fn finish(mut self) -> Model {
        self.link_leftovers();
        self.link_by_kernel();
        self.list_unfollowed();
        // A thread whose start was read too late or not at all looks as if it was never joined.
        self.recording.joins_are_unclear = !self.handles.all_found();
        for (thread, trace) in self.threads.iter_mut().zip(&self.traces) {
            thread.ending = match (trace.gone, thread.joiner, thread.detached) {
                _ if thread.tid.is_none() => Ending::Unknown,
                (false, ..) => Ending::Alive,
                (true, Some(_), _) => Ending::Joined,
                (true, None, true) => Ending::Detached,
                (true, None, false) => Ending::Exited,
            };
        }
        self.note_missing();
        let target = &self.capture.target;
        let platform = Architecture::by_gdb_name(&target.arch);
        Model {
            target: Target {
                arch: platform.map_or(target.arch.clone(), |platform| {
                    platform.arch.name().to_owned()
                }),
                name: program_name(&self.started_as, &self.executable),
                executable: self.executable,
                pid: target.pid,
                parent_pid: Some(target.parent_pid).filter(|pid| *pid != 0),
                processors: usize::try_from(target.processors)
                    .ok()
                    .filter(|number| *number > 0),
            },
            recording: self.recording,
            threads: self.threads,
            processes: Processes {
                all: self.processes,
                ..Processes::default()
            },
            notes: self.notes,
            ..Model::default()
        }
    }
}

/// True if a recorder's command line has an option. Headers before version 1.13 have the options
/// only in this form.
fn has_option(command: &[String], option: &str) -> bool {
    let mut own = command.iter().take_while(|word| *word != "--");
    own.any(|word| word.split('=').next() == Some(option))
}

/// The kernel's name for a process: the path it was started by, which may be a link or a script. A
/// program started without a path (fexecve(3)) has `/dev/fd/7` instead.
fn program_name(started_as: &str, executable: &str) -> String {
    let by_path = !started_as.is_empty() && !started_as.starts_with("/dev/fd/");
    base_name(if by_path { started_as } else { executable }).to_owned()
}

#[cfg(test)]
mod tests;
