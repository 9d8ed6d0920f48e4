//! Finds objects that cost time: contention, convoys, long holds. Thresholds are relative to the
//! recording's length.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Basis;
use super::parked::{self, Parked};
use crate::model::ThreadIndex;
use crate::model::finding::{Act, Facts, Finding, FindingKind, KernelWait};
use crate::model::schedule::{add_time, blocked_within};
use crate::model::sync::long_hold::LongHold;
use crate::model::sync::objects::{Object, ObjectIndex};

/// Total waiting time below which an object is not reported.
const MIN_CONTENTION_NS: u64 = 30_000_000;
/// Waits below the fraction `1 / CONTENTION_DIVISOR` of the recording's time are not reported
/// either.
const CONTENTION_DIVISOR: u64 = 20;
/// Minimum length of a hold that is reported.
const MIN_LONG_HOLD_NS: u64 = 20_000_000;
/// Minimum number of waits in a convoy that began behind other waits.
const MIN_QUEUED: u64 = 20;

/// Total waiting time from which on a lock is reported in a recording of this length, nanoseconds.
pub(in crate::model) fn is_much(duration_ns: u64) -> u64 {
    (duration_ns / CONTENTION_DIVISOR).max(MIN_CONTENTION_NS)
}

pub(super) fn find(basis: &Basis<'_>, findings: &mut Vec<Finding>) {
    let mut indices: Vec<ObjectIndex> = (0..basis.objects.len()).map(ObjectIndex).collect();
    indices.retain(|index| basis.objects[index.0].is_lock());
    let much = is_much(basis.model.recording.duration_ns);
    for group in parked::find(basis) {
        let is_in = |index: &ObjectIndex| group.helpers.iter().any(|(lock, _)| lock == index);
        indices.retain(|index| !is_in(index));
        if group.waited_ns >= much {
            findings.push(parking(basis, &group));
        }
    }
    indices.sort_by_key(|index| std::cmp::Reverse(basis.objects[index.0].waits.total_ns));
    for &index in &indices {
        let object = &basis.objects[index.0];
        let lost = object.stood_ns + object.runnable_ns;
        let own = object.waits.total_ns.saturating_sub(lost);
        if own >= much && !is_by_recording(basis, object) {
            findings.push(match is_convoy(object) {
                true => convoy(basis, index),
                false => contention(basis, index),
            });
        }
    }
    indices.sort_by_key(|index| {
        let longest = &basis.objects[index.0].longest_hold;
        std::cmp::Reverse(longest.as_ref().map_or(0, |hold| hold.ns))
    });
    let mut told = BTreeSet::new();
    for index in indices {
        // One finding stands for all locks that are made in the same place.
        if let Some(finding) = long_hold(basis, index)
            && told.insert(basis.objects[index.0].key)
        {
            findings.push(finding);
        }
    }
}

fn long_hold(basis: &Basis<'_>, index: ObjectIndex) -> Option<Finding> {
    let object = &basis.objects[index.0];
    let hold = object.longest_hold.as_ref()?;
    let by_recording = hold.events.saturating_mul(basis.event_ns);
    // The hold's end may be among the missing events if their times are unknown.
    if hold.own_ns().saturating_sub(by_recording) < MIN_LONG_HOLD_NS
        || !basis.model.recording.is_certain_between_gaps()
    {
        return None;
    }
    let (waiter, waiting) = match (hold.longest_wait, hold.first) {
        (Some((_, used, thread)), _) => (used, thread),
        (None, Some((used, thread))) => (used, thread),
        (None, None) => return None,
    };
    let sampled = basis
        .kernel_waits
        .longest(hold.thread, hold.from_ns, hold.from_ns + hold.ns);
    let sampled = sampled.map(|(blocking, ns)| KernelWait {
        call: blocking.call,
        object: blocking.futex.and_then(|word| basis.object_with(word)),
        file: blocking.file.clone(),
        stack: blocking.stack.clone(),
        ns,
    });
    let called = longest_call(basis, hold);
    let called_ns = called.as_ref().map_or(0, |wait| wait.ns);
    // A sample has the stack, too.
    let kernel = sampled.filter(|wait| wait.ns >= called_ns / 2).or(called);
    let holding = match (hold.taken, hold.given_up) {
        (Some(taken), _) => Some(basis.evidence(hold.thread, taken, Act::TookFor(hold.ns), index)),
        (None, Some(path)) => {
            let act = match hold.may_be_shared {
                true => Act::GaveUp,
                false => Act::GaveUpAfter(hold.ns),
            };
            Some(basis.evidence_at(hold.thread, path, act, index))
        }
        (None, None) => None,
    };
    let waited = basis.evidence(waiting, waiter, Act::WaitedFor, index);
    Some(Finding {
        kind: FindingKind::LongHold,
        proved: basis.lossless()
            && !object.doubtful
            && !basis.is_overloaded
            && !object.used_as_lock
            && is_own(hold.ns, hold.stood_ns + hold.runnable_ns),
        threads: vec![hold.thread, waiting],
        circle: false,
        objects: vec![basis.named(index)],
        facts: Facts::LongHold {
            object: index,
            kernel,
            overloaded: basis.is_overloaded,
        },
        evidence: holding.into_iter().chain([waited]).collect(),
    })
}

/// The system call in which the holder was blocked longest, by the kernel's schedule. Samples do
/// not see short calls.
fn longest_call(basis: &Basis<'_>, hold: &LongHold) -> Option<KernelWait> {
    let schedule = &basis.model.schedule;
    let intervals = schedule.of_thread(hold.thread);
    let mut times = Vec::new();
    for (call, ns) in blocked_within(intervals, hold.from_ns, hold.from_ns + hold.ns) {
        if let Some(call) = call {
            add_time(&mut times, call, ns);
        }
    }
    let (index, ns) = times.into_iter().max_by_key(|(_, ns)| *ns)?;
    let call = schedule.call(index).filter(|call| !call.is_futex)?;
    Some(KernelWait {
        call: Some(call.name),
        object: None,
        file: call.file.clone(),
        stack: Arc::default(),
        ns,
    })
}

/// True if the recorder's delays and waits for a processor explain at most half of the time.
fn is_own(ns: u64, lost_ns: u64) -> bool {
    lost_ns <= ns / 2
}

/// True if recording causes at least half of the time for which the object is held. Without
/// recording there might be no waits.
fn is_by_recording(basis: &Basis<'_>, object: &Object) -> bool {
    let cost = object.hold_events.saturating_mul(basis.event_ns);
    object.holds.count > 0 && cost >= object.holds.total_ns / 2
}

/// True if most threads arrive when others already wait, for an object that each holds only
/// briefly. It is none if all waits may have been for one hold.
fn is_convoy(object: &Object) -> bool {
    let queue = object.longest_queue as u64;
    object.queued >= MIN_QUEUED
        && object.waits.max_ns.saturating_mul(queue) < object.waits.total_ns
        && object.queued * 2 >= object.taken.max(object.waits.count)
        && object.waits.mean_ns() > 2 * object.holds.mean_ns()
        && !has_one_culprit(object)
}

/// True if threads waited for one and the same thread for most of the time.
fn has_one_culprit(object: &Object) -> bool {
    let mut by_holder: HashMap<ThreadIndex, u64> = HashMap::new();
    for pair in object.contention.iter().filter(|pair| pair.for_one) {
        *by_holder.entry(pair.longest.1).or_default() += pair.total_ns;
    }
    let most = by_holder.into_values().max().unwrap_or(0);
    most > object.waits.total_ns / 3 * 2
}

/// One finding for all helpers that a thread parks. The intention of the program is inferred.
fn parking(basis: &Basis<'_>, group: &Parked) -> Finding {
    let helpers = &group.helpers;
    let mut threads = vec![group.owner];
    threads.extend(helpers.iter().map(|(_, helper)| *helper));
    let evidence = helpers
        .first()
        .map(|(lock, _)| contention(basis, *lock).evidence);
    Finding {
        kind: FindingKind::Contention,
        proved: false,
        threads,
        circle: false,
        objects: helpers.iter().map(|(lock, _)| basis.named(*lock)).collect(),
        facts: Facts::Parking {
            owner: group.owner,
            helpers: helpers.clone(),
            waited_ns: group.waited_ns,
        },
        evidence: evidence.unwrap_or_default(),
    }
}

fn convoy(basis: &Basis<'_>, index: ObjectIndex) -> Finding {
    let mut finding = contention(basis, index);
    finding.kind = FindingKind::Convoy;
    finding.facts = Facts::Convoy {
        object: index,
        overloaded: basis.is_overloaded,
    };
    finding
}

fn contention(basis: &Basis<'_>, index: ObjectIndex) -> Finding {
    let object = &basis.objects[index.0];
    let mut threads = Vec::new();
    let mut evidence = Vec::new();
    if let Some(pair) = object.contention.first() {
        let (waiting, holding) = pair.longest;
        threads = vec![waiting, holding];
        evidence.push(basis.evidence(waiting, pair.waiter, Act::WaitedFor, index));
        if let Some(holder) = pair.holder {
            evidence.push(basis.evidence(holding, holder, Act::HadTaken, index));
        } else if let Some(ended) = pair.ended {
            evidence.push(basis.evidence_at(holding, ended, Act::GaveUp, index));
        }
    } else if let Some(used) = longest_wait(basis, object) {
        let thread = basis.uses[used.0].thread;
        threads = vec![thread];
        evidence.push(basis.evidence(thread, used, Act::WaitedFor, index));
    }
    Finding {
        kind: FindingKind::Contention,
        // The waits were seen; the reader decides whether they matter. A sample is not proof,
        // because another recording may contain another sample.
        proved: basis.clock_is_sound
            && !basis.model.recording.is_sample()
            && !basis.is_overloaded
            && !object.used_as_lock
            && is_own(object.waits.total_ns, object.stood_ns + object.runnable_ns),
        threads,
        circle: false,
        objects: vec![basis.named(index)],
        facts: Facts::Contention {
            object: index,
            overloaded: basis.is_overloaded,
        },
        evidence,
    }
}

fn longest_wait(basis: &Basis<'_>, object: &Object) -> Option<crate::model::sync::UseIndex> {
    let uses = object.uses.iter().copied();
    uses.max_by_key(|used| basis.uses[used.0].waits.total_ns)
}
