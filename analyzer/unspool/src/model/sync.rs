//! Analyses the use of synchronization objects: which threads wait, for whom, and for how long.
//!
//! The analysis reads the calls of a recording once, in order. `replay` tracks the lock holders and
//! feeds the other modules. Memory grows with the number of objects, distinct call paths and
//! threads, not with the number of events.

mod concurrency;
mod contention;
pub(in crate::model) mod final_waits;
mod findings;
mod gaps;
mod happens_before;
mod histogram;
mod holds;
mod idle;
mod journal;
mod kernel_waits;
mod lock_order;
mod long_hold;
mod meaning;
mod meetings;
mod misuse;
mod naming;
mod objects;
mod order;
mod past_holds;
mod paused_probes;
mod processors;
mod queues;
mod recorder_stalls;
mod remapping;
mod replay;
mod semaphores;
mod slots;
mod stale_wake;
mod tenures;
#[cfg(test)]
mod tests;
mod under_way;
mod usage;
mod wakes;

pub use concurrency::{Concurrency, Slice};
pub(super) use findings::is_much;
pub(crate) use findings::length;
pub use histogram::Histogram;
pub use journal::{HoldSpan, Journal, WaitSpan};
pub use lock_order::{Exclusion, LockOrder, OrderEdge};
pub use long_hold::LongHold;
pub(super) use naming::variable_name;
pub(crate) use naming::{caller, place, place_text};
pub(crate) use objects::share;
pub use objects::{Contention, Object, ObjectIndex, Share, TimedOut, Use, UseIndex, Waiting};
pub use paused_probes::PausedProbes;
pub use processors::{Processors, Turn};
pub use slots::{Slot, Slots};
pub use usage::{Caller, FunctionTimes, ThreadTimes};

use std::collections::HashMap;
use std::sync::Arc;

use unspool_capture::{Capture, ProbeKind, Record, Source};
use unspool_image::Arch;

use super::backtrace::{Backtrace, Frames};
use super::calls::Calls;
use super::critical_path::CallMarks;
use super::window::Window;
use super::{Detail, Finding, Key, Model, Note, ThreadIndex, Topic};
use holds::MAX_HELD;
use kernel_waits::KernelWaits;
use recorder_stalls::RecorderStalls;
use remapping::Remapping;
use replay::Replay;

/// Number of time slices per recording. A page has fewer columns.
const SLICES: usize = 1000;

/// A note mentions recorder delays of at least the fraction `1 / NOTED_DELAY_DIVISOR` of the
/// recording.
const NOTED_DELAY_DIVISOR: u64 = 50;

/// If the recorder was late for more than the fraction `1 / OVERLOAD_DIVISOR` of the recording,
/// durations may come from an overloaded machine.
const OVERLOAD_DIVISOR: u64 = 10;
/// Late time that is always acceptable, because planting probes delays threads on any machine.
const MAX_PLANTING_NS: u64 = 500_000_000;

/// Events are recorded almost in order of time. A larger step backwards means a wrong clock.
const MIN_JUMP_NS: u64 = 1_000_000;

/// Everything the analysis found out about synchronization.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sync {
    /// True if calls of synchronization functions, or of other functions, were recorded.
    pub recorded: bool,
    /// Total time in which the recorder may have stopped some thread, nanoseconds.
    pub stood_ns: u64,
    /// The part of it in which the server was late, without having halted the program.
    pub late_ns: u64,
    /// Times in which waits may have gone unseen.
    pub paused_probes: PausedProbes,
    /// All objects, in the order they were made or first used.
    pub objects: Vec<Object>,
    /// All uses of all objects.
    pub uses: Vec<Use>,
    /// Which locks were taken while which others were held.
    pub lock_order: LockOrder,
    /// The distinct call paths; [`PathId`](super::calls::PathId) counts here.
    pub paths: Vec<Arc<Backtrace>>,
    /// The instrumented functions that were called, by total time, longest first.
    pub functions: Vec<FunctionTimes>,
    /// Per thread of the model.
    pub threads: Vec<ThreadTimes>,
    /// The waits of each thread in each time slice.
    pub slots: Slots,
    /// Each wait and hold by itself, if the model was built with a journal.
    pub journal: Option<Journal>,
    /// Each thread's use of the processors.
    pub processors: Processors,
    /// The number of running and waiting threads over time.
    pub concurrency: Concurrency,
    /// Identities of threads, each with its first thread and their number.
    pub identities: Vec<(Key, ThreadIndex, usize)>,
    /// Per thread of the model, its identity in `identities`.
    pub identity_of: Vec<usize>,
    /// Waits that had not ended when the recording did.
    pub(super) final_waits: Vec<final_waits::FinalWait>,
    /// Beginnings and ends of all calls, until the critical path is known.
    pub(super) call_marks: CallMarks,
}

impl Sync {
    /// An object by its index; indices come from this same value.
    pub fn object(&self, index: ObjectIndex) -> &Object {
        &self.objects[index.0]
    }

    /// A use by its index; indices come from this same value.
    pub fn used(&self, index: UseIndex) -> &Use {
        &self.uses[index.0]
    }

    /// Two sums over all threads, in nanoseconds, from the kernel's records: the time on a
    /// processor, and the time runnable but waiting for a processor. Returns nothing if less than
    /// half of the threads' time is known.
    pub fn turns(&self) -> Option<(u64, u64)> {
        let alive: u64 = self.threads.iter().map(|times| times.alive_ns).sum();
        let mut all = Turn::default();
        for total in &self.processors.totals {
            all.add(*total);
        }
        let (on_cpu, runnable) = all.of(alive)?;
        Some((on_cpu as u64, runnable as u64))
    }

    /// The name of an object: its variable, or where it was made or first used.
    pub fn name(&self, object: &Object) -> Option<Arc<str>> {
        naming::name_of(object, self.paths.get(object.origin.0).map(|path| &**path))
    }

    /// The call path of a use, innermost frame (the primitive's function) first.
    pub fn path(&self, used: &Use) -> &Arc<Backtrace> {
        &self.paths[used.path.0]
    }
}

/// Analyses the calls of a capture: returns their statistics, findings and notes.
pub(super) fn analyse(
    capture: &Capture,
    model: &Model,
    frames: &mut dyn Frames,
    detail: Detail,
) -> (Sync, Vec<Finding>, Vec<Note>) {
    let records = &capture.records[..];
    let (identities, identity_of) = identities(model);
    if capture.header.source() == Source::Inspected {
        // An inspection records no events.
        let sync = Sync {
            threads: vec![ThreadTimes::default(); model.threads.len()],
            identities,
            identity_of,
            ..Sync::default()
        };
        return (sync, Vec::new(), Vec::new());
    }
    let end_ns = model.recording.duration_ns;
    let (from_ns, to_ns) = detail
        .span
        .map_or((0, end_ns), |(from, to)| (from, to.min(end_ns)));
    let window = Window {
        from_ns,
        to_ns: to_ns.max(from_ns.saturating_add(1)),
        columns: SLICES,
    };
    let slots = Slots::new(window, model.threads.len());
    let stalls = RecorderStalls::of(records);
    let (stood_ns, late_ns) = (stalls.total(), stalls.late_ns());
    let (musl, layout) = (frames.is_musl(), frames.layout());
    let mut replay = Replay::new(model, &identity_of, slots, stalls, musl, layout);
    replay.remappings = Remapping::all(model, capture).into();
    replay.journal = Some(Journal {
        keeps_holds: detail.journal,
        ..Journal::default()
    });
    let mut call_marks = CallMarks::default();
    let mut calls = if records.iter().any(instruments) {
        Calls::interpret(capture, model, frames, &mut |calls, moment| {
            call_marks.note(moment);
            replay.moment(calls, moment);
        })
    } else {
        Calls::default()
    };
    replay.finish();
    let last = records.len().saturating_sub(1);
    replay.objects.identify(last, frames, &calls.paths);
    naming::name_joined(&mut replay.objects.objects, &model.threads);
    naming::tell_apart(&mut replay.objects.objects, &calls.paths);
    naming::number_namesakes(&mut replay.objects.objects, &calls.paths);
    idle::tell(
        &replay.objects.objects,
        &mut replay.objects.uses,
        &calls.paths,
    );
    let functions = replay.take_functions(&calls);
    let threads = times(model, &replay);
    let basis = findings::Basis {
        model,
        objects: &replay.objects.objects,
        uses: &replay.objects.uses,
        paths: &calls.paths,
        identity_of: &identity_of,
        kernel_waits: KernelWaits::of(
            records,
            Arch::from_gdb_name(&capture.target.arch),
            model,
            frames,
        ),
        event_ns: replay.unhindered.median_ns(),
        is_overloaded: late_ns > (end_ns / OVERLOAD_DIVISOR).max(MAX_PLANTING_NS),
        clock_is_sound: replay.jump_ns < MIN_JUMP_NS,
    };
    let findings = basis.all(&replay, joins_are_seen(records));
    let final_waits = final_waits::of(&basis, &replay);
    drop(basis);
    let processors = Processors::of(records, model, &window);
    let concurrency = concurrency::of(
        model,
        &replay.slots,
        &processors,
        &replay.objects.objects,
        &replay.objects.uses,
    );
    let mut notes = notes(&calls, replay.unseen_ends);
    if replay.jump_ns >= MIN_JUMP_NS {
        let text = format!(
            "Recorded times go backwards by up to {:.3} s, so durations are doubtful.",
            replay.jump_ns as f64 / 1e9
        );
        notes.push(Note::warning(text).about(Topic::Times));
    }
    if !calls.functions.is_empty() && stood_ns >= (end_ns / NOTED_DELAY_DIVISOR).max(1) {
        let text = format!(
            "The recorder itself may have delayed threads by up to {} in total.",
            length(stood_ns)
        );
        let details = "Contention, convoys and long holds are findings only if they last longer \
             than the recorder's delays during that time.";
        notes.push(Note::info(text).about(Topic::Times).with_details(details));
    }
    let mut lock_order = std::mem::take(&mut replay.order.counts).finish();
    lock_order.explain(&replay.order, &findings);
    lock_order.cut |= replay.holds.overflowed;
    if lock_order.cut {
        let text = format!(
            "The lock order is incomplete, because there are too many pairs of locks, or a thread \
             seemed to hold more than {MAX_HELD} locks at a time."
        );
        notes.push(Note::warning(text).about(Topic::Calls));
    }
    let sync = Sync {
        stood_ns,
        late_ns,
        paused_probes: PausedProbes::of(records, end_ns),
        recorded: !calls.functions.is_empty(),
        objects: std::mem::take(&mut replay.objects.objects),
        uses: std::mem::take(&mut replay.objects.uses),
        lock_order,
        paths: std::mem::take(&mut calls.paths),
        functions,
        threads,
        slots: std::mem::take(&mut replay.slots),
        journal: replay.journal.take(),
        processors,
        concurrency,
        identities,
        final_waits,
        call_marks,
        identity_of: Vec::new(),
    };
    drop(replay);
    (
        Sync {
            identity_of,
            ..sync
        },
        findings,
        notes,
    )
}

fn instruments(record: &Record) -> bool {
    let Record::Probe(probe) = record else {
        return false;
    };
    matches!(
        probe.kind(),
        ProbeKind::Enter | ProbeKind::FutexWait | ProbeKind::FutexWake
    )
}

fn joins_are_seen(records: &[Record]) -> bool {
    records
        .iter()
        .any(|record| matches!(record, Record::Probe(probe) if probe.kind() == ProbeKind::Join))
}

fn identities(model: &Model) -> (Vec<(Key, ThreadIndex, usize)>, Vec<usize>) {
    let mut all: Vec<(Key, ThreadIndex, usize)> = Vec::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    let of = model.threads.iter().enumerate().map(|(index, thread)| {
        let at = *known.entry(thread.key).or_insert(all.len());
        match all.get_mut(at) {
            Some((_, _, count)) => *count += 1,
            None => all.push((thread.key, ThreadIndex(index), 1)),
        }
        at
    });
    let of = of.collect();
    (all, of)
}

fn times(model: &Model, replay: &Replay<'_>) -> Vec<ThreadTimes> {
    let mut times: Vec<ThreadTimes> = vec![ThreadTimes::default(); model.threads.len()];
    for (index, thread) in model.threads.iter().enumerate() {
        if let Some(ThreadIndex(creator)) = thread.creator()
            && let Some(times) = times.get_mut(creator)
        {
            times.creations += 1;
        }
        let mine = &mut times[index];
        let (from, to) = model.life(thread).unwrap_or_default();
        mine.alive_ns = to - from;
        mine.operations = replay.usage.operations[index];
        for (used, ns) in &replay.usage.waited[index] {
            match replay.objects.uses[used.0].waiting {
                Waiting::Held => mine.held_ns += ns,
                Waiting::Others => mine.others_ns += ns,
                Waiting::Idle => mine.idle_ns += ns,
            }
        }
    }
    times
}

fn notes(calls: &Calls, unseen_ends: u64) -> Vec<Note> {
    let mut notes = Vec::new();
    if unseen_ends > 0 {
        let text = format!(
            "{} of {} recorded calls have no end, and no duration.",
            unseen_ends, calls.count
        );
        let details = "An exception, a longjmp or the end of the thread ended these calls, or their end \
             was lost.";
        notes.push(Note::info(text).about(Topic::Calls).with_details(details));
    }
    if let Some(failure) = &calls.failure {
        notes.push(Note::error(format!(
            "Not all calls could be read: {failure}. Everything about synchronization is \
             incomplete."
        )));
    }
    if calls.strangers > 0 {
        let text = format!("{} calls of unknown threads are left out.", calls.strangers);
        notes.push(Note::warning(text).about(Topic::Calls));
    }
    notes
}
