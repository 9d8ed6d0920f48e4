//! The critical path of a recording: the chain of intervals that determines the wall time, and what
//! would shorten it.
//!
//! `steps` turns the schedule and the recorded waits into what each thread did, `walk` follows the
//! path backwards from the last event, `functions` names the code between recorded calls, and
//! `impact` replays the run with parts of it made faster. `work` adds up what threads did. All are
//! pure functions over the finished history and schedule.

mod bottleneck;
mod contended;
mod crowding;
mod finding;
mod functions;
mod impact;
mod replay;
mod steps;
#[cfg(test)]
mod tests;
mod walk;
mod work;

pub use bottleneck::Bottleneck;
pub(super) use finding::finding;
pub use functions::{Calls as CallMarks, FunctionIndex, Functions};
pub use impact::{Impact, Item};
pub(super) use steps::{Blocking, End, blocking};
pub use work::{Runnable, Work};

use replay::{Change, Replay};

use super::schedule::{BlockedCall, CallIndex, FutexWait, Schedule};
use super::sync::{Object, Use, WaitSpan};
use super::thread::{Thread, ThreadIndex};
use super::window::Window;
use crate::model::sync::ObjectIndex;
use std::collections::{BTreeMap, HashMap};

/// No conclusions are drawn if more than the fraction `1 / MAX_UNKNOWN_DIVISOR` of the path is
/// unknown.
const MAX_UNKNOWN_DIVISOR: u64 = 5;

/// The critical path, from the first event of the program to the last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CriticalPath {
    /// Its segments without gaps, the earliest first.
    pub segments: Vec<Segment>,
    /// Segments of the same identity, function, object and state together, the longest first.
    pub groups: Vec<Group>,
    /// What would shorten the run, the largest effect first.
    pub impacts: Vec<Impact>,
    /// Length of the run in the replay of what was recorded, without the recorder's stops,
    /// nanoseconds.
    pub replayed_ns: u64,
    /// The number of processors in the replay.
    pub processors: usize,
    /// The functions that segments and impacts refer to.
    pub functions: Functions,
    /// The source of the wake-ups.
    pub basis: Basis,
    /// What limits the run, if that is worth a finding.
    pub bottleneck: Option<Bottleneck>,
}

/// How wake-ups are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// By the kernel's schedule, with the waker of each thread.
    #[default]
    Wakers,
    /// By the kernel's schedule and the recorded futex calls.
    Futexes,
    /// By the recorded calls alone.
    Calls,
}

impl Basis {
    /// `wakers`, `futexes` or `calls`.
    pub fn as_str(self) -> &'static str {
        match self {
            Basis::Wakers => "wakers",
            Basis::Futexes => "futexes",
            Basis::Calls => "calls",
        }
    }
}

/// A part of the path in which one thread did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The thread, perhaps of a process that the program started.
    pub thread: ThreadIndex,
    /// Its beginning, nanoseconds since the recording began.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
    /// What the thread did.
    pub state: PathState,
    /// The function it was in, as far as known.
    pub function: Option<FunctionIndex>,
    /// What the path's next thread waited for meanwhile, or else a lock that it held and others
    /// waited for.
    pub awaited: Option<Awaited>,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// An object, in a recorded call.
    Object(ObjectIndex),
    /// A lock whose calls were not recorded, in a system call. Its position in
    /// [`Model::lock_waits`](crate::model::Model::lock_waits).
    LockWaits(usize, CallIndex),
    /// Another system call, other than one at a futex.
    Call(CallIndex),
}

impl Segment {
    /// The object for which the path's next thread waited meanwhile.
    pub fn object(&self) -> Option<ObjectIndex> {
        match self.awaited? {
            Awaited::Object(object) => Some(object),
            Awaited::LockWaits(..) | Awaited::Call(_) => None,
        }
    }

    /// The lock that the path's next thread waited for meanwhile, if its calls were not recorded.
    pub fn lock_waits(&self) -> Option<usize> {
        match self.awaited? {
            Awaited::LockWaits(index, _) => Some(index),
            Awaited::Object(_) | Awaited::Call(_) => None,
        }
    }

    /// The system call in which the path's next thread was blocked meanwhile.
    pub fn call(&self) -> Option<CallIndex> {
        match self.awaited? {
            Awaited::Object(_) => None,
            Awaited::LockWaits(_, call) | Awaited::Call(call) => Some(call),
        }
    }

    /// Its length in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// What a thread did on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathState {
    /// It ran.
    Running,
    /// It waited for a processor.
    Runnable,
    /// It waited for a device or a timer.
    Blocked,
    /// It waited until a thread of another process woke it.
    Outside,
    /// The recorder had stopped it.
    Recorder,
    /// It waited, and it is not known what ended the wait; or its state is not known.
    Unknown,
}

impl PathState {
    /// The word for it in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            PathState::Running => "running",
            PathState::Runnable => "runnable",
            PathState::Blocked => "blocked",
            PathState::Outside => "outside",
            PathState::Recorder => "recorder",
            PathState::Unknown => "unknown",
        }
    }
}

/// Segments of the same identity, function, object or system call, and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The threads' identity, in [`Sync::identities`](super::sync::Sync::identities).
    pub identity: usize,
    /// The function.
    pub function: Option<FunctionIndex>,
    /// The object.
    pub object: Option<ObjectIndex>,
    /// The system call. It has a file only if that is the same for all segments.
    pub call: Option<BlockedCall>,
    /// What the threads did.
    pub state: PathState,
    /// Number of segments.
    pub count: u64,
    /// Their total length, nanoseconds.
    pub total_ns: u64,
}

/// What the path is computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) threads: &'a [Thread],
    pub(super) schedule: &'a Schedule,
    /// Waits in any order; empty if synchronization was not recorded.
    pub(super) waits: &'a [WaitSpan],
    pub(super) uses: &'a [Use],
    pub(super) objects: &'a [Object],
    /// Per thread, its identity.
    pub(super) identity_of: &'a [usize],
    /// Per thread and system call, the lock that it waits for.
    pub(super) lock_of: &'a HashMap<(ThreadIndex, CallIndex), Awaited>,
    /// The number of identities of the program's own threads. Larger ones are other programs.
    pub(super) own_identities: usize,
    /// Length of the recording, nanoseconds.
    pub(super) duration_ns: u64,
    /// Number of processors that the program could use, if known.
    pub(super) processors: Option<usize>,
    /// True if the recorder started the program, so that a stranger that wakes the first thread
    /// first is the recorder.
    pub(super) launched: bool,
}

impl Facts<'_> {
    fn identity(&self, thread: ThreadIndex) -> usize {
        self.identity_of.get(thread.0).copied().unwrap_or(0)
    }

    /// The number of the program's own threads.
    fn own_threads(&self) -> usize {
        let own = self.identity_of.iter();
        own.filter(|identity| **identity < self.own_identities)
            .count()
    }

    /// The object that a use waits for; none for a join, which waits for a thread.
    fn object(&self, used: super::sync::UseIndex) -> Option<ObjectIndex> {
        let object = self.uses.get(used.0)?.object;
        let kind = self.objects.get(object.0)?.kind;
        (kind != crate::primitives::Kind::Join).then_some(object)
    }

    /// What a thread waited for in a recorded call, or else in a system call.
    fn awaited(
        &self,
        thread: ThreadIndex,
        used: Option<super::sync::UseIndex>,
        call: Option<CallIndex>,
    ) -> Option<Awaited> {
        match used {
            Some(used) => self.object(used).map(Awaited::Object),
            None => {
                let call = call?;
                if let Some(lock) = self.lock_of.get(&(thread, call)) {
                    return Some(*lock);
                }
                let is_unnamed = self.schedule.call(call)?.is_unnamed_futex();
                (!is_unnamed).then_some(Awaited::Call(call))
            }
        }
    }
}

impl CriticalPath {
    /// True if the threads of an identity wait for devices, timers or other programs in most of
    /// their part of the path.
    pub fn mostly_waits(&self, identity: usize) -> bool {
        let sum = |is_wanted: &dyn Fn(PathState) -> bool| -> u64 {
            let own = self
                .groups
                .iter()
                .filter(|group| group.identity == identity);
            own.filter(|group| is_wanted(group.state))
                .map(|group| group.total_ns)
                .sum()
        };
        let waits = |state| matches!(state, PathState::Blocked | PathState::Outside);
        sum(&waits) > sum(&|state| state == PathState::Running)
    }

    /// Computes the path. Returns nothing if neither the schedule nor waits were recorded.
    pub(super) fn of(facts: &Facts<'_>, functions: Functions) -> Option<CriticalPath> {
        let steps = steps::Steps::of(facts)?;
        let segments = contended::mark(facts, walk::path(facts, &steps, &functions));
        let groups = groups(facts, &segments);
        let mut path = CriticalPath {
            segments,
            groups,
            impacts: Vec::new(),
            replayed_ns: 0,
            processors: steps.processors,
            functions,
            basis: steps.basis,
            bottleneck: None,
        };
        let last = path.segments.last()?.thread;
        let replay = Replay::of(facts, &steps, &path.functions, last, path.span_ns());
        path.replayed_ns = replay.length_ns(Change::Nothing);
        path.impacts = impact::ranked(&path, &replay, path.replayed_ns, facts, &steps);
        path.bottleneck = bottleneck::of(facts, &steps, &path, |impact| {
            let change = match impact.item {
                Item::Threads(identity) => Change::RunningOfThreads(identity),
                Item::Function(function) => Change::RunningOfFunction(function),
                Item::Lock(_) | Item::LockWaits(_) | Item::Processors => {
                    return impact.saved_ns;
                }
            };
            path.replayed_ns.saturating_sub(replay.length_ns(change))
        });
        Some(path)
    }

    /// Start and end of the path, nanoseconds since the recording began.
    pub fn span_ns(&self) -> (u64, u64) {
        let from = self.segments.first().map_or(0, |first| first.from_ns);
        let to = self.segments.last().map_or(from, |last| last.to_ns);
        (from, to)
    }

    /// The part of the path in a state, nanoseconds.
    pub fn time_in(&self, state: PathState) -> u64 {
        let here = self.groups.iter().filter(|group| group.state == state);
        here.map(|group| group.total_ns).sum()
    }

    /// True if too much of the path is unknown for conclusions from it.
    pub(in crate::model) fn has_much_unknown(&self) -> bool {
        self.time_in(PathState::Unknown) > self.length_ns() / MAX_UNKNOWN_DIVISOR
    }

    /// The thread that has most of the path in each column of a window.
    pub fn columns(&self, window: &Window) -> Vec<Option<ThreadIndex>> {
        let mut columns: Vec<BTreeMap<ThreadIndex, u64>> = vec![BTreeMap::new(); window.columns];
        let first = self.segments.partition_point(|s| s.to_ns <= window.from_ns);
        for segment in &self.segments[first..] {
            let Some(touched) = window.columns_of(segment.from_ns, segment.to_ns) else {
                break;
            };
            for column in touched {
                let from = window.column_ns(column).max(segment.from_ns);
                let to = window.column_ns(column + 1).min(segment.to_ns);
                if let Some(threads) = columns.get_mut(column) {
                    *threads.entry(segment.thread).or_default() += to.saturating_sub(from);
                }
            }
        }
        let most = |threads: BTreeMap<ThreadIndex, u64>| {
            let most = threads.into_iter().max_by_key(|(_, ns)| *ns)?;
            Some(most.0)
        };
        columns.into_iter().map(most).collect()
    }

    /// Length of the path, nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.segments.iter().map(Segment::length_ns).sum()
    }
}

fn groups(facts: &Facts<'_>, segments: &[Segment]) -> Vec<Group> {
    type Key<'a> = (
        usize,
        Option<FunctionIndex>,
        Option<ObjectIndex>,
        Option<(&'a str, Option<&'a FutexWait>)>,
        PathState,
    );
    let mut known: foldhash::HashMap<Key<'_>, usize> = foldhash::HashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    for segment in segments {
        let identity = facts.identity(segment.thread);
        let (function, object, state) = (segment.function, segment.object(), segment.state);
        let call = segment.call().and_then(|call| facts.schedule.call(call));
        let kind = call.map(|call| (call.name, call.waits_for.as_ref()));
        let at = *known
            .entry((identity, function, object, kind, state))
            .or_insert_with(|| {
                groups.push(Group {
                    identity,
                    function,
                    object,
                    call: call.cloned(),
                    state,
                    count: 0,
                    total_ns: 0,
                });
                groups.len() - 1
            });
        let group = &mut groups[at];
        group.count += 1;
        group.total_ns += segment.length_ns();
        if let Some((of_all, call)) = group.call.as_mut().zip(call)
            && of_all.file != call.file
        {
            of_all.file.clear();
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.total_ns));
    groups
}
