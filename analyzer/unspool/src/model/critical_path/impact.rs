//! Ranks what would shorten the run: threads or functions that are twice as fast, locks that are
//! never contended, more processors.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::functions::FunctionIndex;
use super::replay::{Change, Replay};
use super::steps::{Doing, End, Steps};
use super::{Awaited, CriticalPath, Facts, PathState};
use crate::model::ThreadIndex;
use crate::model::sync::{Object, ObjectIndex};

/// What could be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// Threads of this identity, in [`Sync::identities`](crate::model::sync::Sync::identities),
    /// twice as fast.
    Threads(usize),
    /// A function, twice as fast in all threads.
    Function(FunctionIndex),
    /// A lock, never contended.
    Lock(ObjectIndex),
    /// A lock whose calls were not recorded, never contended. Its position in
    /// [`Model::lock_waits`](crate::model::Model::lock_waits).
    LockWaits(usize),
    /// Twice as many processors.
    Processors,
}

impl Item {
    fn change(self) -> Change {
        match self {
            Item::Threads(identity) => Change::Threads(identity),
            Item::Function(function) => Change::Function(function),
            Item::Lock(lock) => Change::Lock(lock),
            Item::LockWaits(index) => Change::LockWaits(index),
            Item::Processors => Change::Processors(2),
        }
    }

    /// The order of items with the same effect.
    fn order(self) -> usize {
        match self {
            Item::Lock(_) | Item::LockWaits(_) => 0,
            Item::Processors => 1,
            Item::Threads(_) => 2,
            Item::Function(_) => 3,
        }
    }

    /// `threads`, `function`, `lock` or `processors`.
    pub fn as_str(self) -> &'static str {
        match self {
            Item::Threads(_) => "threads",
            Item::Function(_) => "function",
            Item::Lock(_) | Item::LockWaits(_) => "lock",
            Item::Processors => "processors",
        }
    }
}

/// How much shorter the run would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impact {
    /// The change that is replayed.
    pub item: Item,
    /// By how much the run would be shorter, nanoseconds.
    pub saved_ns: u64,
    /// The item's part of the path, in nanoseconds.
    pub path_ns: u64,
}

/// Of each kind, this many are replayed.
const MAX_REPLAYS_OF_KIND: usize = 6;
/// All replays together have about as many operations, which take a second at most.
const MAX_OPERATIONS: usize = 8_000_000;
/// Minimum number of items to replay, in a recording of any size.
const MIN_REPLAYS: usize = 4;
/// Items with less than the fraction `1 / MIN_SHARE_DIVISOR` of the path are not replayed.
const MIN_SHARE_DIVISOR: u64 = 25;
/// Effects below the fraction `1 / MIN_EFFECT_DIVISOR` of the run are not reported.
const MIN_EFFECT_DIVISOR: u64 = 100;

/// The items, the largest effect first.
pub(super) fn ranked(
    path: &CriticalPath,
    replay: &Replay,
    replayed_ns: u64,
    facts: &Facts<'_>,
    steps: &Steps<'_>,
) -> Vec<Impact> {
    let mut candidates = candidates(path, facts, steps);
    let most = MAX_OPERATIONS / replay.size().max(1);
    candidates.sort_by_key(|candidate| (Reverse(candidate.most_ns), candidate.item.order()));
    candidates.truncate(most.max(MIN_REPLAYS));
    let mut impacts: Vec<Impact> = candidates
        .into_iter()
        .map(|candidate| Impact {
            item: candidate.item,
            saved_ns: replayed_ns.saturating_sub(replay.length_ns(candidate.item.change())),
            path_ns: candidate.path_ns,
        })
        .filter(|impact| impact.saved_ns >= (replayed_ns / MIN_EFFECT_DIVISOR).max(1))
        .collect();
    let percent = |impact: &Impact| 100 * weight(impact) / replayed_ns.max(1);
    impacts.sort_by_key(|impact| (Reverse(percent(impact)), impact.item.order()));
    impacts
}

/// An item that may have an effect.
struct Candidate {
    item: Item,
    /// The item's part of the path, in nanoseconds.
    path_ns: u64,
    /// The item's part of the path, or the length of all waits for a lock.
    most_ns: u64,
}

fn candidates(path: &CriticalPath, facts: &Facts<'_>, steps: &Steps<'_>) -> Vec<Candidate> {
    let mut own: BTreeMap<(usize, Item), u64> = BTreeMap::new();
    let mut locks: BTreeMap<Item, u64> = BTreeMap::new();
    for segment in &path.segments {
        let ns = segment.length_ns();
        if let Some(lock) = segment.awaited.and_then(|it| lock(facts, it)) {
            *locks.entry(lock).or_default() += ns;
        }
        let threads = Item::Threads(facts.identity(segment.thread));
        let items = match segment.state {
            PathState::Running | PathState::Blocked | PathState::Outside => {
                [Some(threads), segment.function.map(Item::Function)]
            }
            PathState::Runnable => [Some(Item::Processors), None],
            PathState::Recorder | PathState::Unknown => continue,
        };
        for item in items.into_iter().flatten() {
            *own.entry((item.order(), item)).or_default() += ns;
        }
    }
    // The path goes on in the thread that held a lock, so a lock may have a short part of it and
    // yet put one thread's work behind another's.
    let mut waits: BTreeMap<Item, u64> = BTreeMap::new();
    let all = steps.threads().enumerate();
    let all = all.flat_map(|(thread, steps)| steps.iter().map(move |step| (thread, step)));
    for (thread, step) in all {
        if let Doing::Blocked {
            end: End::By(_),
            used,
            call,
            ..
        } = step.doing
            && let Some(awaited) = facts.awaited(ThreadIndex(thread), used, call)
            && let Some(lock) = lock(facts, awaited)
        {
            *waits.entry(lock).or_default() += step.to_ns.saturating_sub(step.from_ns);
        }
    }
    let own = own.into_iter().map(|((_, item), ns)| Candidate {
        item,
        path_ns: ns,
        most_ns: ns,
    });
    let waits = waits.into_iter().map(|(lock, ns)| Candidate {
        item: lock,
        path_ns: locks.get(&lock).copied().unwrap_or(0),
        most_ns: ns,
    });
    let mut all: Vec<Candidate> = own.chain(waits).collect();
    let least = (path.length_ns() / MIN_SHARE_DIVISOR).max(1);
    all.retain(|candidate| candidate.most_ns >= least);
    all.sort_by_key(|candidate| (candidate.item.order(), Reverse(candidate.most_ns)));
    let of_kind = all.chunk_by(|one, other| one.item.order() == other.item.order());
    let mut kept = Vec::new();
    for kind in of_kind {
        let some = kind.iter().take(MAX_REPLAYS_OF_KIND);
        kept.extend(some.map(|one| Candidate { ..*one }));
    }
    kept
}

/// What items are ordered by. All work in half the time is more than a program can reach, so
/// a lock or missing processors with nearly the same effect come first.
fn weight(impact: &Impact) -> u64 {
    match impact.item {
        Item::Lock(_) | Item::LockWaits(_) | Item::Processors => {
            impact.saved_ns.saturating_mul(3) / 2
        }
        Item::Threads(_) | Item::Function(_) => impact.saved_ns,
    }
}

/// The lock that a thread waits for: an object that a thread holds for itself, so that another one
/// has to wait.
fn lock(facts: &Facts<'_>, awaited: Awaited) -> Option<Item> {
    match awaited {
        Awaited::Object(object) => {
            let is_lock = facts.objects.get(object.0).is_some_and(Object::is_lock);
            is_lock.then_some(Item::Lock(object))
        }
        Awaited::LockWaits(index, _) => Some(Item::LockWaits(index)),
        Awaited::Call(_) => None,
    }
}
