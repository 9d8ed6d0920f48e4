//! Finds helper threads that another thread parks with one mutex each.
//!
//! The owner holds a helper's mutex as long as the helper has nothing to do. The helper takes the
//! mutex and releases it at once. Example: the I/O threads of Redis. Such waits are meant, so one
//! finding for all helpers says what was seen.

use std::collections::BTreeMap;

use super::Basis;
use crate::model::ThreadIndex;
use crate::model::calls::PathId;
use crate::model::sync::objects::{Object, ObjectIndex};
use crate::primitives::Kind;

/// Minimum number of helpers, unless the owner itself waits idle while they do. Otherwise, one
/// helper may be a thread that just waits for a lock.
const MIN_HELPERS: usize = 2;
/// The calls in which threads wait for requests. A thread that holds a lock across a `read` may
/// wait for something that it needs.
const IDLE_CALLS: &[&str] = &[
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "ppoll_time64",
    "select",
    "_newselect",
    "pselect6",
    "pselect6_time64",
    "accept",
    "accept4",
];
/// Minimum number of waits for the mutex of a single helper, which come again and again.
const MIN_WAITS_OF_ONE: u64 = 4;
/// A helper's holds are shorter than the fraction `1 / HOLD_DIVISOR` of its waits.
const HOLD_DIVISOR: u64 = 20;
/// Minimum length of the longest hold by the owner.
const MIN_PARKED_NS: u64 = 20_000_000;

/// Threads that one thread parks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parked {
    /// The thread that holds the mutexes.
    pub(super) owner: ThreadIndex,
    /// The mutexes, each with the helper that waits for it.
    pub(super) helpers: Vec<(ObjectIndex, ThreadIndex)>,
    /// Total length of the helpers' waits, nanoseconds.
    pub(super) waited_ns: u64,
    /// The owner waited for requests meanwhile.
    is_idle: bool,
}

/// All groups of parked threads.
pub(super) fn find(basis: &Basis<'_>) -> Vec<Parked> {
    let mut groups: BTreeMap<(ThreadIndex, PathId), Parked> = BTreeMap::new();
    for (index, object) in basis.objects.iter().enumerate() {
        let Some((owner, helper, place)) = parks(basis, object) else {
            continue;
        };
        let group = groups.entry((owner, place)).or_insert(Parked {
            owner,
            helpers: Vec::new(),
            waited_ns: 0,
            is_idle: true,
        });
        group.is_idle &= is_idle(basis, object);
        group.helpers.push((ObjectIndex(index), helper));
        group.waited_ns += object.waits.total_ns;
    }
    let mut groups: Vec<Parked> = groups.into_values().collect();
    groups.retain(|group| {
        let mut threads: Vec<_> = group.helpers.iter().map(|(_, helper)| *helper).collect();
        threads.sort_unstable();
        threads.dedup();
        let are_enough = threads.len() >= MIN_HELPERS || threads.len() == 1 && group.is_idle;
        threads.len() == group.helpers.len() && are_enough
    });
    groups
}

/// The owner, the helper and the helper's place, if one thread may park another with a mutex.
fn parks(basis: &Basis<'_>, object: &Object) -> Option<(ThreadIndex, ThreadIndex, PathId)> {
    let first = object
        .contention
        .first()
        .filter(|_| object.kind == Kind::Mutex)?;
    let (helper, owner) = first.longest;
    // On a busy machine, the owner may find that a helper has the mutex at that moment.
    let is_brief = |waited_ns: u64| waited_ns <= object.waits.total_ns / HOLD_DIVISOR;
    let mut pairs = object.contention.iter();
    let one_pair = pairs.all(|pair| {
        let owner_waits = pair.longest == (owner, helper) && is_brief(pair.total_ns);
        pair.by_one && pair.for_one && (pair.longest == (helper, owner) || owner_waits)
    });
    if !one_pair || helper == owner {
        return None;
    }
    // Not all waits have a known holder; their threads must be the helper's like.
    let place = basis.uses[first.waiter.0].path;
    let identity = *basis.identity_of.get(helper.0)?;
    let uses = object.uses.iter().map(|used| &basis.uses[used.0]);
    let mut waits = uses.filter(|used| used.waits.count > 0);
    let waits_there = waits.all(|used| {
        let is_helpers =
            used.path == place && used.shares.iter().all(|share| share.identity == identity);
        is_helpers || is_brief(used.waits.total_ns)
    });
    let briefly = object.uses.iter().all(|used| {
        let used = &basis.uses[used.0];
        let by_helper = used.path == place;
        !by_helper || used.holds.mean_ns() <= object.waits.mean_ns() / HOLD_DIVISOR
    });
    let long = object
        .longest_hold
        .as_ref()
        .is_some_and(|hold| hold.thread == owner && hold.own_ns() >= MIN_PARKED_NS);
    let long = long || is_idle(basis, object);
    (waits_there && briefly && long).then_some((owner, helper, place))
}

/// True if the holder of a mutex waited for requests for most of the time for which others waited,
/// again and again, for the mutex.
fn is_idle(basis: &Basis<'_>, object: &Object) -> bool {
    let calls = object.contention.iter().flat_map(|pair| &pair.holder_calls);
    let idle = calls.filter(|(call, _)| {
        let call = basis.model.schedule.call(*call);
        call.is_some_and(|call| IDLE_CALLS.contains(&call.name))
    });
    let idle_ns: u64 = idle.map(|(_, ns)| ns).sum();
    object.waits.count >= MIN_WAITS_OF_ONE
        && idle_ns >= MIN_PARKED_NS
        && idle_ns > object.waits.total_ns / 2
}
