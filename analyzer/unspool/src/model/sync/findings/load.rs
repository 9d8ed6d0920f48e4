//! Objects that cost time: contention, convoys, long holds. What matters is measured against the recording.

use std::collections::BTreeSet;

use super::{Words, length, times};
use crate::model::finding::{Finding, FindingKind};
use crate::model::sync::objects::{Object, ObjectIndex};
use crate::primitives::Kind;

/// Waiting altogether below this is nothing to look at, ...
const LITTLE_NS: u64 = 30_000_000;
/// ... nor is less than this part of the recording's time.
const PART: u64 = 20;
/// A hold of this length is felt.
const LONG_NS: u64 = 20_000_000;
/// A convoy has so many waits that began behind others.
const QUEUED: u64 = 20;

pub(super) fn find(words: &Words<'_>, findings: &mut Vec<Finding>) {
    let mut indices: Vec<ObjectIndex> = (0..words.objects.len()).map(ObjectIndex).collect();
    indices.retain(|index| {
        let kind = words.objects[index.0].kind;
        matches!(kind, Kind::Mutex | Kind::Rwlock)
    });
    indices.sort_by_key(|index| std::cmp::Reverse(words.objects[index.0].waits.total_ns));
    for &index in &indices {
        let object = &words.objects[index.0];
        let much = (words.model.recording.duration_ns / PART).max(LITTLE_NS);
        let own = object.waits.total_ns.saturating_sub(object.stood_ns);
        if own >= much && !is_by_recording(words, object) {
            findings.push(match is_convoy(object) {
                true => convoy(words, index),
                false => contention(words, index),
            });
        }
    }
    indices.sort_by_key(|index| {
        let longest = &words.objects[index.0].longest_hold;
        std::cmp::Reverse(longest.as_ref().map_or(0, |hold| hold.ns))
    });
    let mut told = BTreeSet::new();
    for index in indices {
        // One of many locks that are made in the same place says it for all of them.
        if let Some(finding) = long_hold(words, index)
            && told.insert(words.objects[index.0].key)
        {
            findings.push(finding);
        }
    }
}

fn long_hold(words: &Words<'_>, index: ObjectIndex) -> Option<Finding> {
    let object = &words.objects[index.0];
    let hold = object.longest_hold.as_ref()?;
    let by_recording = hold.events.saturating_mul(words.event_ns) + hold.stood_ns;
    // Where nobody knows which events are missing, its end may be.
    if hold.ns.saturating_sub(by_recording) < LONG_NS
        || !words.model.recording.is_certain_between_gaps()
    {
        return None;
    }
    let name = words.object(index);
    Some(Finding {
        kind: FindingKind::LongHold,
        proved: words.lossless()
            && !object.doubtful
            && doubt(words).is_empty()
            && is_own(hold.ns, hold.stood_ns),
        threads: vec![hold.thread, hold.waiting],
        circle: false,
        objects: vec![words.named(index)],
        text: format!(
            "{} held {name} for {}, taken{}, while {} waited for it{}.{}{}",
            words.thread(hold.thread),
            length(hold.ns),
            words.at(hold.taken),
            words.thread(hold.waiting),
            words.at(hold.waiter),
            of_which(hold.ns, hold.stood_ns),
            doubt(words),
        ),
        evidence: vec![
            words.evidence(
                hold.thread,
                hold.taken,
                format!("took {name} and held it for {}", length(hold.ns)),
            ),
            words.evidence(hold.waiting, hold.waiter, format!("waited for {name}")),
        ],
    })
}

/// Why lengths of time tell nothing of the program for certain, if there is a reason.
fn doubt(words: &Words<'_>) -> &'static str {
    if words.model.recording.is_waited_for() {
        " Recorded with --lossless, the program may have waited for its recorder meanwhile."
    } else if words.is_overloaded {
        " Much of the time some thread stood for the recorder: on a machine that busy, locks are also kept by threads that wait for a processor."
    } else {
        ""
    }
}

/// Most of the time cannot have come of threads that stood for the recorder.
fn is_own(ns: u64, stood_ns: u64) -> bool {
    stood_ns <= ns / 2
}

/// What of a time may have come of that, where it matters.
fn of_which(ns: u64, stood_ns: u64) -> String {
    match stood_ns > ns / 10 {
        true => format!(
            " For up to {} of that some thread stood for the recorder, which was busy or had to wait for a processor itself.",
            length(stood_ns)
        ),
        false => String::new(),
    }
}

/// Most of the time for which it is held is what recording costs its holders: without that, nobody might wait.
fn is_by_recording(words: &Words<'_>, object: &Object) -> bool {
    let cost = object.hold_events.saturating_mul(words.event_ns);
    object.holds.count > 0 && cost >= object.holds.total_ns / 2
}

/// Most come when others wait already, for a thing that each holds but shortly.
fn is_convoy(object: &Object) -> bool {
    object.queued >= QUEUED
        && object.queued * 2 >= object.taken.max(object.waits.count)
        && object.waits.mean_ns() > 2 * object.holds.mean_ns()
}

fn convoy(words: &Words<'_>, index: ObjectIndex) -> Finding {
    let object = &words.objects[index.0];
    let name = words.object(index);
    let mut finding = contention(words, index);
    finding.kind = FindingKind::Convoy;
    let held = match object.holds.count {
        0 => String::new(),
        _ => format!(
            "held for {} on average, and ",
            length(object.holds.mean_ns())
        ),
    };
    // Where only waits are seen, nobody knows how often it was taken.
    let (behind, all) = (object.queued, object.taken.max(object.waits.count));
    let queued = match object.taken {
        0 => format!("{behind} of {all} waits for it began when others waited already"),
        _ => format!("{behind} of {all} times it was taken, others waited already"),
    };
    finding.text = format!(
        "Threads queue up at {name}, up to {} at a time: {queued}. It is {held}waited for {} on average, {} altogether.{}{}",
        object.longest_queue,
        length(object.waits.mean_ns()),
        length(object.waits.total_ns),
        of_which(object.waits.total_ns, object.stood_ns),
        doubt(words),
    );
    finding
}

fn contention(words: &Words<'_>, index: ObjectIndex) -> Finding {
    let object = &words.objects[index.0];
    let name = words.object(index);
    let mut threads = Vec::new();
    let mut evidence = Vec::new();
    let mut text = format!(
        "Threads waited {} for {name}, {} altogether, at most {}.",
        times(object.waits.count),
        length(object.waits.total_ns),
        length(object.waits.max_ns),
    );
    if let Some(blame) = object.blames.first() {
        let (waiting, holding) = blame.longest;
        let seen = match (blame.holder, blame.ended) {
            (Some(holder), _) => format!(", which had taken it{}", words.at(holder)),
            (None, Some(ended)) => format!(", which gave it up{}", words.at_path(ended)),
            (None, None) => String::new(),
        };
        text.push_str(&format!(
            " Most of it, {}: {} waited{} for {}{seen}.",
            length(blame.total_ns),
            words.thread(waiting),
            words.at(blame.waiter),
            words.thread(holding),
        ));
        threads = vec![waiting, holding];
        evidence.push(words.evidence(waiting, blame.waiter, format!("waited for {name}")));
        if let Some(holder) = blame.holder {
            evidence.push(words.evidence(holding, holder, format!("had taken {name}")));
        } else if let Some(ended) = blame.ended {
            evidence.push(words.evidence_at(holding, ended, format!("gave up {name}")));
        }
    } else if let Some(used) = longest_wait(words, object) {
        let thread = words.uses[used.0].thread;
        threads = vec![thread];
        evidence.push(words.evidence(thread, used, format!("waited for {name}")));
    }
    text.push_str(&of_which(object.waits.total_ns, object.stood_ns));
    text.push_str(doubt(words));
    Finding {
        kind: FindingKind::Contention,
        // It was seen; how much of it matters is for the reader.
        proved: words.clock_is_sound
            && doubt(words).is_empty()
            && is_own(object.waits.total_ns, object.stood_ns),
        threads,
        circle: false,
        objects: vec![words.named(index)],
        text,
        evidence,
    }
}

fn longest_wait(words: &Words<'_>, object: &Object) -> Option<crate::model::sync::UseIndex> {
    let uses = object.uses.iter().copied();
    uses.max_by_key(|used| words.uses[used.0].waits.total_ns)
}
