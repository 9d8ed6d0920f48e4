//! The report as JSON: all threads with their identities and creation stacks.
//!
//! The schema is stable (`docs/reference/report-json.md`). It contains everything that text views
//! leave out for lack of space.

use std::io::{self, Write};

use serde::Serialize;
use unspool_capture::Source;

use super::critical::CriticalPath;
use super::lock_order::{self, JsonOrderEdge};
use super::lock_waits::{CallObject, LockWaits};
use super::profile::Profile;
use super::sync::{self, CallPath, Concurrency, Function, JsonFinding, SyncObject, Times};
use super::{Frame, FunctionPlace, Target};
use crate::model::schedule::{CallTime, CallWake, Wakers, sum_of};
use crate::model::{
    Creation, Model, Paused, Process as StartedProcess, ProgramEnd, Thread, ThreadIndex,
};
use crate::views::call_waits::{self, Woken, WokenBy};
use crate::views::{Style, blocking_call, wording};

/// Writes the report as one JSON document.
pub fn write(model: &Model, out: &mut dyn Write, _style: &Style) -> io::Result<()> {
    super::write(out, &document(model, true))
}

/// The report as a document. `waits` includes the times at which each thread waited, and each CPU
/// sample.
pub(in crate::views) fn document(model: &Model, waits: bool) -> impl Serialize {
    report(model, waits)
}

fn report(model: &Model, waits: bool) -> Report<'_> {
    let (notes, errors) = super::notes(model);
    let wakers = model.wakers();
    Report {
        schema_version: super::SCHEMA_VERSION,
        target: Target::of(model),
        recording: Recording::of(model),
        processes: (model.processes.all.iter())
            .map(|process| Process::of(model, &wakers, process))
            .collect(),
        recorded: (model.recorded.iter())
            .map(|other| report(other, waits))
            .collect(),
        modules: model
            .modules
            .iter()
            .map(|module| Module {
                path: &module.path,
                build_id: module.build_id.as_deref(),
            })
            .collect(),
        threads: model
            .threads
            .iter()
            .enumerate()
            .map(|(index, thread)| ReportThread::of(model, &wakers, index, thread, waits))
            .collect(),
        sync_recorded: model.sync.recorded,
        lock_waits: model
            .lock_waits
            .iter()
            .map(|waits| LockWaits::of(model, waits))
            .collect(),
        objects: (model.sync.objects.iter())
            .map(|object| SyncObject::of(model, object))
            .collect(),
        lock_order: lock_order::edges(model),
        lock_order_note: wording::missing_circles(model),
        functions: model.sync.functions.iter().map(Function::of).collect(),
        paths: sync::paths(&model.sync),
        concurrency: model.sync.recorded.then(|| Concurrency::of(&model.sync)),
        critical_path: CriticalPath::of(model, waits),
        profile: Profile::of(model, waits),
        findings: (model.findings.iter())
            .map(|finding| JsonFinding::of(model, finding))
            .collect(),
        errors,
        notes,
    }
}

#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    target: Target<'a>,
    recording: Recording<'a>,
    processes: Vec<Process<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recorded: Vec<Report<'a>>,
    modules: Vec<Module<'a>>,
    threads: Vec<ReportThread<'a>>,
    sync_recorded: bool,
    lock_waits: Vec<LockWaits<'a>>,
    objects: Vec<SyncObject<'a>>,
    lock_order: Vec<JsonOrderEdge>,
    lock_order_note: Option<String>,
    functions: Vec<Function<'a>>,
    paths: Vec<CallPath<'a>>,
    concurrency: Option<Concurrency>,
    critical_path: Option<CriticalPath<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile<'a>>,
    findings: Vec<JsonFinding<'a>>,
    errors: Vec<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Recording<'a> {
    product: &'a str,
    command: &'a [String],
    source: Option<&'static str>,
    start_unix_ns: Option<u64>,
    duration_ns: u64,
    complete: bool,
    dropped_events: u64,
    calls_recorded: u64,
    calls_missed: u64,
    too_little_seen: bool,
    too_few_lock_calls: bool,
    stood_ns: u64,
    late_ns: u64,
    paused_probes: Vec<PausedProbe<'a>>,
    schedule: Option<RecordedSchedule>,
    exit_code: Option<i32>,
    signal: Option<u32>,
    signal_name: Option<String>,
}

/// The range and completeness of the recorded kernel schedule.
#[derive(Serialize)]
struct RecordedSchedule {
    from_ns: u64,
    to_ns: u64,
    wakers: bool,
    lost: u64,
    stolen_ns: Option<u64>,
}

impl RecordedSchedule {
    fn of(model: &Model) -> Option<RecordedSchedule> {
        let (from_ns, to_ns) = model.schedule.span_ns?;
        Some(RecordedSchedule {
            from_ns,
            to_ns,
            wakers: model.schedule.has_wakers,
            lost: model.schedule.lost,
            stolen_ns: model.schedule.stolen_ns,
        })
    }
}

impl<'a> Recording<'a> {
    fn of(model: &'a Model) -> Recording<'a> {
        let recording = &model.recording;
        let (exit_code, signal) = match recording.program_end {
            Some(ProgramEnd::Exited(code)) => (Some(code), None),
            Some(ProgramEnd::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        Recording {
            product: &recording.product,
            command: &recording.command,
            source: match recording.source {
                Some(Source::Launched) => Some("launched"),
                Some(Source::Attached) => Some("attached"),
                Some(Source::Connected) => Some("connected"),
                Some(Source::Inspected) => Some("inspected"),
                Some(Source::Unspecified) | None => None,
            },
            start_unix_ns: Some(recording.start_unix_ns).filter(|ns| *ns != 0),
            duration_ns: recording.duration_ns,
            complete: recording.is_complete() && !model.processes.lacks_creations(),
            dropped_events: recording.dropped,
            calls_recorded: recording.calls_recorded,
            calls_missed: recording.calls_missed(),
            too_little_seen: recording.too_little_seen(),
            too_few_lock_calls: recording.too_few_lock_calls(),
            stood_ns: model.sync.stood_ns,
            late_ns: model.sync.late_ns,
            paused_probes: recording.paused.iter().map(PausedProbe::of).collect(),
            schedule: RecordedSchedule::of(model),
            exit_code,
            signal,
            signal_name: signal.map(wording::signal),
        }
    }
}

#[derive(Serialize)]
struct PausedProbe<'a> {
    function: &'a str,
    recorded: u64,
    pauses: u64,
    paused_ns: u64,
    missed: u64,
    missed_exact: bool,
}

impl<'a> PausedProbe<'a> {
    fn of(paused: &'a Paused) -> PausedProbe<'a> {
        PausedProbe {
            function: &paused.function,
            recorded: paused.recorded,
            pauses: paused.pauses,
            paused_ns: paused.paused_ns,
            missed: paused.missed,
            missed_exact: paused.exact,
        }
    }
}

/// A process that the program or one of its descendants started.
#[derive(Serialize)]
struct Process<'a> {
    pid: u64,
    creator_tid: Option<u64>,
    parent: Option<usize>,
    program: Option<&'a str>,
    executable: Option<&'a str>,
    executed: &'a [String],
    started_ns: u64,
    ended_ns: Option<u64>,
    times: Option<ProcessTimes>,
    threads: Vec<ProcessThread<'a>>,
}

/// Sums over the threads of a process.
#[derive(Serialize)]
struct ProcessTimes {
    running_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    stopped_ns: u64,
    unknown_ns: u64,
}

#[derive(Serialize)]
struct ProcessThread<'a> {
    tid: Option<u64>,
    name: &'a str,
    key: Option<String>,
    function: Option<&'a str>,
    function_place: Option<FunctionPlace<'a>>,
    creator: Option<usize>,
    creation: Vec<Frame<'a>>,
    creation_truncated: Option<&'a str>,
    started_ns: Option<u64>,
    ended_ns: Option<u64>,
    schedule: Option<ThreadSchedule<'a>>,
}

impl<'a> Process<'a> {
    fn of(model: &'a Model, wakers: &Wakers<'_>, process: &'a StartedProcess) -> Process<'a> {
        let all = &model.processes;
        let times = all.times(process);
        let parent = process.creator.and_then(|creator| model.process(creator));
        let first = ThreadIndex(model.threads.len() + process.first_thread);
        Process {
            pid: process.pid,
            creator_tid: process.creator_tid,
            parent: parent.map(|(index, _)| index.0),
            program: all.program(process).map(|(name, _)| name.as_str()),
            executable: Some(process.executable.as_str()).filter(|path| !path.is_empty()),
            executed: &process.executed,
            started_ns: process.started_ns,
            ended_ns: process.ended_ns,
            times: process.is_recorded().then_some(ProcessTimes {
                running_ns: times.running_ns,
                runnable_ns: times.runnable_ns,
                blocked_ns: times.blocked_ns,
                stopped_ns: times.stopped_ns,
                unknown_ns: times.unknown_ns,
            }),
            threads: (all.threads_of(process).iter().enumerate())
                .map(|(index, thread)| {
                    let index = ThreadIndex(first.0 + index);
                    ProcessThread::of(model, wakers, (index, thread), first)
                })
                .collect(),
        }
    }
}

impl<'a> ProcessThread<'a> {
    /// `first` is the first thread of the process.
    fn of(
        model: &'a Model,
        wakers: &Wakers<'_>,
        (index, thread): (ThreadIndex, &'a Thread),
        first: ThreadIndex,
    ) -> ProcessThread<'a> {
        let stack = thread.creation_stack();
        let creator = thread.creator();
        ProcessThread {
            tid: thread.tid,
            name: &thread.name,
            key: stack.map(|_| thread.key.to_string()),
            function: function_name(thread),
            function_place: thread.function.as_ref().map(FunctionPlace::from),
            creator: creator.and_then(|creator| creator.0.checked_sub(first.0)),
            creation: super::frames(stack),
            creation_truncated: stack.and_then(|stack| stack.truncated.as_deref()),
            started_ns: thread.started_ns,
            ended_ns: thread.ended_ns,
            schedule: ThreadSchedule::of(model, wakers, index),
        }
    }
}

fn function_name(thread: &Thread) -> Option<&str> {
    thread.function.as_ref()?.function.as_deref()
}

#[derive(Serialize)]
struct Module<'a> {
    path: &'a str,
    build_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ReportThread<'a> {
    tid: Option<u64>,
    name: &'a str,
    key: String,
    function: Option<&'a str>,
    function_place: Option<FunctionPlace<'a>>,
    origin: &'static str,
    creator_tid: Option<u64>,
    creator: Option<usize>,
    creation: Vec<Frame<'a>>,
    creation_truncated: Option<&'a str>,
    creation_inferred: bool,
    created_ns: Option<u64>,
    started_ns: Option<u64>,
    ended_ns: Option<u64>,
    end_exact: bool,
    end: &'static str,
    detached: bool,
    joiner_tid: Option<u64>,
    times: Option<Times>,
    schedule: Option<ThreadSchedule<'a>>,
}

/// Time that a thread spent in each state, by the kernel's schedule.
#[derive(Serialize)]
struct ThreadSchedule<'a> {
    running_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    stopped_ns: u64,
    unknown_ns: u64,
    switches: u64,
    preemptions: u64,
    system_calls: Vec<SystemCall<'a>>,
}

/// Time that a thread was blocked in one system call, or for a reason that was not recorded.
#[derive(Serialize)]
struct SystemCall<'a> {
    text: Option<String>,
    call: Option<&'a str>,
    file: Option<&'a str>,
    function: Option<&'a str>,
    object: Option<CallObject<'a>>,
    count: u64,
    blocked_ns: u64,
    longest_ns: u64,
    woken_by: Vec<CallWaker<'a>>,
}

/// What ended the times in which a thread was blocked in one system call.
#[derive(Serialize)]
struct CallWaker<'a> {
    waker: &'static str,
    key: Option<String>,
    thread: Option<usize>,
    process: Option<usize>,
    program: Option<&'a str>,
    count: u64,
    blocked_ns: u64,
}

impl<'a> CallWaker<'a> {
    fn of(model: &'a Model, woken: &Woken) -> CallWaker<'a> {
        let key = match woken.by {
            WokenBy::Threads(identity) => model.sync.identities.get(identity),
            _ => None,
        };
        let program = match woken.by {
            WokenBy::Threads(identity) => model.program(identity),
            _ => None,
        };
        let (thread, process) = super::thread_or_process(model, woken.one);
        CallWaker {
            waker: woken.by.as_str(),
            key: key.map(|(key, ..)| key.to_string()),
            thread,
            process,
            program: program.map(|(name, _)| name.as_str()),
            count: woken.blocked.count,
            blocked_ns: woken.blocked.ns,
        }
    }
}

impl<'a> SystemCall<'a> {
    fn of(model: &'a Model, time: &CallTime, wakes: &[CallWake]) -> SystemCall<'a> {
        let call = time.call.and_then(|call| model.schedule.call(call));
        let file = call.map(|call| call.file.as_str());
        let wait = call.and_then(|call| call.waits_for.as_ref());
        SystemCall {
            text: call.map(blocking_call::title),
            call: call.map(|call| call.name),
            file: file.filter(|file| !file.is_empty()),
            function: wait.map(|wait| &*wait.function),
            object: wait.and_then(CallObject::of),
            count: time.count,
            blocked_ns: time.blocked_ns,
            longest_ns: time.longest_ns,
            woken_by: (call_waits::by_identity(model, wakes).iter())
                .map(|woken| CallWaker::of(model, woken))
                .collect(),
        }
    }
}

impl<'a> ThreadSchedule<'a> {
    fn of(
        model: &'a Model,
        wakers: &Wakers<'_>,
        thread: ThreadIndex,
    ) -> Option<ThreadSchedule<'a>> {
        let intervals = model.intervals(thread);
        if intervals.is_empty() {
            return None;
        }
        let times = sum_of(intervals);
        let wakes = wakers.call_wakes(thread);
        Some(ThreadSchedule {
            running_ns: times.running_ns,
            runnable_ns: times.runnable_ns,
            blocked_ns: times.blocked_ns,
            stopped_ns: times.stopped_ns,
            unknown_ns: times.unknown_ns,
            switches: times.switches,
            preemptions: times.preemptions,
            system_calls: (model.schedule.call_times(intervals).iter())
                .map(|time| {
                    let wakes = wakes.get(&time.call).map_or(&[][..], Vec::as_slice);
                    SystemCall::of(model, time, wakes)
                })
                .collect(),
        })
    }
}

impl<'a> ReportThread<'a> {
    fn of(
        model: &'a Model,
        wakers: &Wakers<'_>,
        index: usize,
        thread: &'a Thread,
        waits: bool,
    ) -> ReportThread<'a> {
        let tid = |index: ThreadIndex| model.thread(index).and_then(|thread| thread.tid);
        let stack = thread.creation_stack();
        ReportThread {
            tid: thread.tid,
            name: &thread.name,
            key: thread.key.to_string(),
            function: function_name(thread),
            function_place: thread.function.as_ref().map(FunctionPlace::from),
            origin: match thread.creation {
                Creation::Main => "main",
                Creation::Seen { .. } | Creation::Recorded { .. } => "created",
                Creation::Before => "before",
                Creation::Unseen => "unseen",
            },
            creator_tid: thread.creator().and_then(tid),
            creator: thread.creator().map(|ThreadIndex(index)| index),
            creation: super::frames(stack),
            creation_truncated: stack.and_then(|stack| stack.truncated.as_deref()),
            creation_inferred: matches!(thread.creation, Creation::Seen { inferred: true, .. }),
            created_ns: thread.created_ns,
            started_ns: thread.started_ns,
            ended_ns: thread.ended_ns,
            end_exact: thread.end_exact,
            end: thread.ending.as_str(),
            detached: thread.detached,
            joiner_tid: thread.joiner.and_then(tid),
            times: Times::of(model, index, waits),
            schedule: ThreadSchedule::of(model, wakers, ThreadIndex(index)),
        }
    }
}
