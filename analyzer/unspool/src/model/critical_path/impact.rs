//! Ranks what would shorten the run: threads or functions that are twice as fast, locks that are
//! never contended, more processors.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::functions::FunctionIndex;
use super::replay::{Change, Replay};
use super::steps::{Doing, End, Steps};
use super::{CriticalPath, Facts, PathState};
use crate::model::sync::{Object, ObjectIndex};
use crate::primitives::Kind;

/// What could be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// Threads of this identity, in [`Sync::identities`](crate::model::sync::Sync::identities),
    /// twice as fast.
    Threads(usize),
    /// A function, twice as fast in all threads.
    Function(FunctionIndex),
    /// A lock, never contended.
    Lock(ObjectIndex),
    /// Twice as many processors.
    Processors,
}

impl Item {
    /// The order of items with the same effect.
    fn order(self) -> usize {
        match self {
            Item::Lock(_) => 0,
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
            Item::Lock(_) => "lock",
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
    /// The part of the path that belongs to it, nanoseconds.
    pub path_ns: u64,
}

/// Of each kind, this many are replayed.
const MAX_REPLAYS_OF_KIND: usize = 6;
/// What has less than one part in this many of the path is not replayed.
const MIN_SHARE_DIVISOR: u64 = 25;
/// An effect below one part in this many of the run is not reported.
const MIN_EFFECT_DIVISOR: u64 = 100;

/// The items, the largest effect first.
pub(super) fn ranked(
    path: &CriticalPath,
    replay: &Replay,
    replayed_ns: u64,
    facts: &Facts<'_>,
    steps: &Steps,
) -> Vec<Impact> {
    let least = path.length_ns() / MIN_SHARE_DIVISOR;
    let mut threads: BTreeMap<usize, u64> = BTreeMap::new();
    let mut functions: BTreeMap<FunctionIndex, u64> = BTreeMap::new();
    let mut locks: BTreeMap<ObjectIndex, u64> = BTreeMap::new();
    let mut runnable = 0;
    for segment in &path.segments {
        let ns = segment.length_ns();
        if let Some(lock) = segment
            .object
            .filter(|object| is_lock(facts.objects, *object))
        {
            *locks.entry(lock).or_default() += ns;
        }
        match segment.state {
            PathState::Running | PathState::Blocked | PathState::Outside => {
                let identity = facts.identity(segment.thread);
                *threads.entry(identity).or_default() += ns;
                if let Some(function) = segment.function {
                    *functions.entry(function).or_default() += ns;
                }
            }
            PathState::Runnable => runnable += ns,
            PathState::Recorder | PathState::Unknown => {}
        }
    }
    let mut items: Vec<(Item, Change, u64)> = Vec::new();
    // The path goes on in the thread that held a lock, so a lock may have a short part of it and
    // yet put one thread's work behind another's.
    let mut waits: BTreeMap<ObjectIndex, u64> = BTreeMap::new();
    for step in steps.threads.iter().flatten() {
        if let Doing::Blocked {
            end: End::By(_),
            used: Some(used),
            ..
        } = step.doing
            && let Some(lock) = facts
                .object(used)
                .filter(|lock| is_lock(facts.objects, *lock))
        {
            *waits.entry(lock).or_default() += step.to_ns.saturating_sub(step.from_ns);
        }
    }
    let path_ns = |lock: &ObjectIndex| locks.get(lock).copied().unwrap_or(0);
    let mut waits: Vec<(ObjectIndex, u64)> = waits.into_iter().collect();
    waits.retain(|(_, ns)| *ns >= least.max(1));
    waits.sort_by_key(|(_, ns)| Reverse(*ns));
    let waits = waits.iter().take(MAX_REPLAYS_OF_KIND);
    items.extend(waits.map(|(lock, _)| (Item::Lock(*lock), Change::Lock(*lock), path_ns(lock))));
    let mut add = |mut some: Vec<(Item, Change, u64)>| {
        some.retain(|(_, _, ns)| *ns >= least.max(1));
        some.sort_by_key(|(_, _, ns)| Reverse(*ns));
        some.truncate(MAX_REPLAYS_OF_KIND);
        items.extend(some);
    };
    let threads = threads.into_iter();
    add(threads
        .map(|(identity, ns)| (Item::Threads(identity), Change::Threads(identity), ns))
        .collect());
    let functions = functions.into_iter();
    add(functions
        .map(|(function, ns)| (Item::Function(function), Change::Function(function), ns))
        .collect());
    add(vec![(Item::Processors, Change::Processors(2), runnable)]);
    let mut impacts: Vec<Impact> = items
        .into_iter()
        .map(|(item, change, path_ns)| Impact {
            item,
            saved_ns: replayed_ns.saturating_sub(replay.length_ns(change)),
            path_ns,
        })
        .filter(|impact| impact.saved_ns >= (replayed_ns / MIN_EFFECT_DIVISOR).max(1))
        .collect();
    let percent = |impact: &Impact| 100 * weight(impact) / replayed_ns.max(1);
    impacts.sort_by_key(|impact| (Reverse(percent(impact)), impact.item.order()));
    impacts
}

/// What items are ordered by. All work in half the time is more than a program can reach, so
/// a lock or missing processors with nearly the same effect come first.
fn weight(impact: &Impact) -> u64 {
    match impact.item {
        Item::Lock(_) | Item::Processors => impact.saved_ns.saturating_mul(3) / 2,
        Item::Threads(_) | Item::Function(_) => impact.saved_ns,
    }
}

/// True for objects that a thread holds for itself, so that another one has to wait.
fn is_lock(objects: &[Object], object: ObjectIndex) -> bool {
    let object = objects.get(object.0);
    object.is_some_and(|object| matches!(object.kind, Kind::Mutex | Kind::Rwlock))
}
