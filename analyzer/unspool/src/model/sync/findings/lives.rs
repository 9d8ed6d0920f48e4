//! Finds threads that are never joined, or that live too briefly to be worth their creation.

use std::collections::BTreeMap;

use super::Basis;
use crate::model::backtrace::Backtrace;
use crate::model::finding::{Evidence, Facts, Finding, FindingKind, Shows};
use crate::model::schedule::RunState;
use crate::model::{Ending, Key, Model, ProgramEnd, Thread, ThreadIndex};

/// Minimum number of short-lived threads from one path that suggests a thread pool.
const MIN_CHURN: usize = 30;
/// Maximum median life of a thread that counts as short.
const MAX_SHORT_LIFE_NS: u64 = 100_000_000;

/// Time that a process takes to end, usually at most. The thread that ends the program by exit(3)
/// ends by itself, unlike the others.
const MAX_EXIT_NS: u64 = 10_000_000;
/// Upper bound of the time that a process takes to end.
const MAX_ENDING_NS: u64 = 10_000_000_000;

/// Adds the findings. `latest_ns` is the time of the last recorded call.
pub(super) fn find(
    basis: &Basis<'_>,
    joins_are_seen: bool,
    latest_ns: u64,
    findings: &mut Vec<Finding>,
) {
    let mut groups: BTreeMap<Key, Vec<ThreadIndex>> = BTreeMap::new();
    for (index, thread) in basis.model.threads.iter().enumerate() {
        if thread.creator().is_some() {
            groups
                .entry(thread.key)
                .or_default()
                .push(ThreadIndex(index));
        }
    }
    let mut groups: Vec<Vec<ThreadIndex>> = groups.into_values().collect();
    groups.sort_by_key(|members| members.first().copied());
    // A join that was not recorded, or whose thread is not known, still is a join.
    let joins_are_seen = joins_are_seen && basis.model.recording.knows_joins();
    let ending_since = ending_since(basis.model, latest_ns);
    for members in &groups {
        if joins_are_seen {
            findings.extend(unjoined(basis, members, ending_since));
        }
        findings.extend(churn(basis, members, ending_since));
    }
}

/// The earliest time at which a program that has ended may have begun to end.
///
/// The kernel ends the remaining threads one after another; on a busy machine this takes up to a
/// second. A thread that ends while other events still occur was not ended by the program's end.
fn ending_since(model: &Model, latest_ns: u64) -> Option<u64> {
    model.recording.program_end?;
    if model.recording.knows_ends() {
        let ended_ns = model.recording.duration_ns;
        return Some(ended_ns.saturating_sub(MAX_EXIT_NS));
    }
    let made = model.threads.iter();
    let made = made.filter_map(|t| t.started_ns.max(t.created_ns)).max();
    // The times of thread ends and of calls come from different clocks.
    let busy = latest_ns.max(made.unwrap_or(0)).max(last_block_ns(model));
    let busy = busy.saturating_sub(model.recording.slack_ns());
    Some(busy.max(model.recording.duration_ns.saturating_sub(MAX_ENDING_NS)))
}

/// The last time at which the kernel's schedule shows that the program was not ending yet: a thread
/// began to wait in a system call, or a timer or device ended such a wait.
fn last_block_ns(model: &Model) -> u64 {
    let threads = (0..model.threads.len()).map(ThreadIndex);
    let last_of = |thread| {
        let intervals = model.schedule.of_thread(thread);
        let index = intervals.iter().rposition(|one| one.call.is_some())?;
        let next = intervals.get(index + 1);
        Some(match next.map(|next| next.state) {
            // The end of a program wakes its threads, too, but the waker is known.
            Some(RunState::Woken { waker: None }) => intervals[index].to_ns,
            _ => intervals[index].from_ns,
        })
    };
    threads.filter_map(last_of).max().unwrap_or(0)
}

/// Whether a thread that has ended did so by itself, not with its program, which may have begun to
/// end at `ending_since`.
fn has_ended_by_itself(thread: &Thread, ending_since: Option<u64>) -> bool {
    match (thread.ended_ns, ending_since) {
        _ if thread.by_exec => false,
        _ if thread.ending == Ending::Joined => true,
        (Some(ended), Some(since)) => ended < since,
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

/// True if a thread has ended while its program went on.
fn has_left(thread: Option<ThreadIndex>, model: &Model, ending_since: Option<u64>) -> bool {
    let thread = thread.and_then(|thread| model.threads.get(thread.0));
    thread.is_some_and(|thread| {
        thread.ended_ns.is_some() && has_ended_by_itself(thread, ending_since)
    })
}

/// Finds threads that ended without being joined or detached. Their remains are never freed (POSIX,
/// `pthread_join`).
///
/// While the program and a thread's creator go on, the join may still follow, and a program that is
/// killed may not have come to it.
fn unjoined(
    basis: &Basis<'_>,
    members: &[ThreadIndex],
    ending_since: Option<u64>,
) -> Option<Finding> {
    let ended = matches!(
        basis.model.recording.program_end,
        Some(ProgramEnd::Exited(_))
    );
    let is_left = |index: &ThreadIndex| {
        let thread = basis.model.threads.get(index.0);
        thread.is_some_and(|thread| {
            thread.ending == Ending::Exited
                && !thread.detached
                && has_ended_by_itself(thread, ending_since)
                && (ended || has_left(thread.creator(), basis.model, ending_since))
        })
    };
    let left: Vec<ThreadIndex> = members.iter().copied().filter(is_left).collect();
    let first = *left.first()?;
    Some(Finding {
        kind: FindingKind::Unjoined,
        proved: ended,
        evidence: created(basis, first).into_iter().collect(),
        threads: left,
        circle: false,
        objects: Vec::new(),
        facts: Facts::Unjoined { ended },
    })
}

fn churn(basis: &Basis<'_>, members: &[ThreadIndex], ending_since: Option<u64>) -> Option<Finding> {
    let threads = members
        .iter()
        .filter_map(|index| basis.model.threads.get(index.0))
        .filter(|thread| has_ended_by_itself(thread, ending_since));
    let mut lives: Vec<u64> = threads
        .filter_map(|t: &Thread| t.ended_ns?.checked_sub(t.started_ns.or(t.created_ns)?))
        .collect();
    if lives.len() < MIN_CHURN {
        return None;
    }
    lives.sort_unstable();
    let median = lives[lives.len() / 2];
    if median > MAX_SHORT_LIFE_NS {
        return None;
    }
    let first = *members.first()?;
    Some(Finding {
        kind: FindingKind::Churn,
        proved: true,
        threads: members.to_vec(),
        circle: false,
        objects: Vec::new(),
        facts: Facts::Churn { median_ns: median },
        evidence: created(basis, first).into_iter().collect(),
    })
}

fn created(basis: &Basis<'_>, thread: ThreadIndex) -> Option<Evidence> {
    let stack: &Backtrace = basis.model.threads.get(thread.0)?.creation_stack()?;
    let creator = basis.model.threads.get(thread.0)?.creator()?;
    Some(Evidence {
        thread: creator,
        shows: Shows::Creates(thread),
        stack: Some(std::sync::Arc::new(stack.clone())),
    })
}
