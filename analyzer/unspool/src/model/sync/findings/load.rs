//! Finds objects that cost time: contention, convoys, long holds. Thresholds are relative to the
//! recording's length.

use std::collections::BTreeSet;

use super::{Words, length, times};
use crate::model::finding::{Facts, Finding, FindingKind};
use crate::model::sync::kernel_waits::Blocking;
use crate::model::sync::objects::{Object, ObjectIndex};
use crate::primitives::Kind;

/// Total waiting time below which an object is not reported.
const MIN_CONTENTION_NS: u64 = 30_000_000;
/// Waits below one part in this many of the recording's time are not reported either.
const CONTENTION_DIVISOR: u64 = 20;
/// Minimum length of a hold that is reported.
const MIN_LONG_HOLD_NS: u64 = 20_000_000;
/// Minimum number of waits in a convoy that began behind other waits.
const MIN_QUEUED: u64 = 20;

pub(super) fn find(words: &Words<'_>, findings: &mut Vec<Finding>) {
    let mut indices: Vec<ObjectIndex> = (0..words.objects.len()).map(ObjectIndex).collect();
    indices.retain(|index| {
        let kind = words.objects[index.0].kind;
        matches!(kind, Kind::Mutex | Kind::Rwlock)
    });
    indices.sort_by_key(|index| std::cmp::Reverse(words.objects[index.0].waits.total_ns));
    for &index in &indices {
        let object = &words.objects[index.0];
        let much = (words.model.recording.duration_ns / CONTENTION_DIVISOR).max(MIN_CONTENTION_NS);
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
        // One finding stands for all locks that are made in the same place.
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
    // The hold's end may be among the missing events if their times are unknown.
    if hold.ns.saturating_sub(by_recording) < MIN_LONG_HOLD_NS
        || !words.model.recording.is_certain_between_gaps()
    {
        return None;
    }
    let name = words.object(index);
    let (waited_ns, waiter, waiting) = match (hold.longest_wait, hold.first) {
        (Some((ns, used, thread)), _) => (Some(ns), used, thread),
        (None, Some((used, thread))) => (None, used, thread),
        (None, None) => return None,
    };
    let busy = words
        .kernel_waits
        .longest(hold.thread, hold.from_ns, hold.from_ns + hold.ns);
    let doing = busy.map_or(String::new(), |(blocking, ns)| {
        let part = match ns > hold.ns / 2 {
            true => "Most of the time",
            false => "For a part of it",
        };
        format!(" {part} {}.", in_kernel(words, blocking))
    });
    let place = words.at(waiter);
    let longest = waited_ns.map_or(String::new(), |ns| format!(" for {}", length(ns)));
    let who = words.thread(waiting);
    let waits = match hold.waiting.len() {
        0 | 1 => format!("Meanwhile {who} waited for it{longest}{place}."),
        count => format!(
            "Meanwhile {count} threads waited for it, {who}{place} longest,{longest}. The waits of \
             these threads add up to {}.",
            length(hold.waited_ns)
        ),
    };
    let held = match (hold.taken, hold.given_up) {
        (Some(taken), _) => format!("for {}, taken{}", length(hold.ns), words.at(taken)),
        (None, Some(path)) => format!(
            "for {} or longer, given up{}",
            length(hold.ns),
            words.at_path(path)
        ),
        (None, None) => format!("for {}", length(hold.ns)),
    };
    let what = |verb: &str| format!("{verb} {name} and held it for {}", length(hold.ns));
    let holding = match (hold.taken, hold.given_up) {
        (Some(taken), _) => Some(words.evidence(hold.thread, taken, what("took"))),
        (None, Some(path)) => {
            let what = format!("gave up {name} after {}", length(hold.ns));
            Some(words.evidence_at(hold.thread, path, what))
        }
        (None, None) => None,
    };
    let waited = words.evidence(waiting, waiter, format!("waited for {name}"));
    Some(Finding {
        kind: FindingKind::LongHold,
        proved: words.lossless()
            && !object.doubtful
            && doubt(words).is_empty()
            && is_own(hold.ns, hold.stood_ns),
        threads: vec![hold.thread, waiting],
        circle: false,
        objects: vec![words.named(index)],
        facts: Facts::Sentences(format!(
            "{} held {name} {held}.{} {waits}{}{}",
            words.thread(hold.thread),
            doing,
            of_which(hold.ns, hold.stood_ns),
            doubt(words),
        )),
        evidence: holding.into_iter().chain([waited]).collect(),
    })
}

/// Describes a wait in the kernel, as `it was in read() of pipe:[7], called in refill
/// (cache.cpp:9)`.
fn in_kernel(words: &Words<'_>, blocking: &Blocking) -> String {
    let place = blocking.stack.frames.iter();
    let mut place = place.filter(|frame| !frame.place.is_within());
    let place = place.next().map_or(String::new(), |frame| {
        format!(", called in {}", super::place(frame))
    });
    let Some(call) = blocking.call else {
        return format!("it waited for memory to be read in (a page fault){place}");
    };
    let object = blocking.futex.and_then(|word| words.object_with(word));
    if let Some(object) = object {
        return format!("it waited for {}{place}", words.object(object));
    }
    match &blocking.file[..] {
        "" => format!("it was in {call}(){place}"),
        file => format!("it was in {call}() of {file}{place}"),
    }
}

/// Says why durations do not describe the program for certain; empty if they do.
fn doubt(words: &Words<'_>) -> &'static str {
    if words.model.recording.waits_for_recorder {
        " With '--budget none' the program may have waited for the recorder meanwhile."
    } else if words.is_overloaded {
        " The recorder delayed threads much of the time. On such a busy machine, threads also \
         hold locks while they wait for a processor."
    } else {
        ""
    }
}

/// True if the recorder's delays cannot explain more than half of the time.
fn is_own(ns: u64, stood_ns: u64) -> bool {
    stood_ns <= ns / 2
}

/// Says how much of a time the recorder may have caused, if that matters.
fn of_which(ns: u64, stood_ns: u64) -> String {
    match stood_ns > ns / 10 {
        true => format!(
            " The recorder itself may have delayed threads for up to {} of that.",
            length(stood_ns)
        ),
        false => String::new(),
    }
}

/// True if recording causes at least half of the time for which the object is held. Without
/// recording there might be no waits.
fn is_by_recording(words: &Words<'_>, object: &Object) -> bool {
    let cost = object.hold_events.saturating_mul(words.event_ns);
    object.holds.count > 0 && cost >= object.holds.total_ns / 2
}

/// True if most threads arrive when others already wait, for an object that each holds only
/// briefly.
fn is_convoy(object: &Object) -> bool {
    object.queued >= MIN_QUEUED
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
    // The number of acquisitions is unknown if only waits are recorded.
    let (behind, all) = (object.queued, object.taken.max(object.waits.count));
    let queued = match object.taken {
        0 => format!("{behind} of {all} waits for it began when other threads already waited"),
        _ => format!("{behind} of {all} times it was taken, other threads already waited"),
    };
    finding.facts = Facts::Sentences(format!(
        "Threads queue up at {name}, up to {} at a time: {queued}. It is {held}waited for {} on average; all waits of all threads add up to {}.{}{}",
        object.longest_queue,
        length(object.waits.mean_ns()),
        length(object.waits.total_ns),
        of_which(object.waits.total_ns, object.stood_ns),
        doubt(words),
    ));
    finding
}

fn contention(words: &Words<'_>, index: ObjectIndex) -> Finding {
    let object = &words.objects[index.0];
    let name = words.object(index);
    let mut threads = Vec::new();
    let mut evidence = Vec::new();
    let mut text = format!(
        "Threads waited {} for {name}, at most {} at a time; all waits of all threads add up to {}.",
        times(object.waits.count),
        length(object.waits.max_ns),
        length(object.waits.total_ns),
    );
    if let Some(pair) = object.contention.first() {
        let (waiting, holding) = pair.longest;
        let seen = match (pair.holder, pair.ended) {
            (Some(holder), _) => format!(", which had taken it{}", words.at(holder)),
            (None, Some(ended)) => format!(", which gave it up{}", words.at_path(ended)),
            (None, None) => String::new(),
        };
        let who = words.thread(waiting);
        let at = words.at(pair.waiter);
        let for_whom = match pair.for_one {
            true => words.thread(holding),
            false => format!("threads such as {}", words.thread(holding)),
        };
        let whose = match (pair.by_one, pair.count) {
            (true, 1) => format!("The largest part is one wait of {who}{at}"),
            (true, count) => format!("The largest part is {count} waits of {who}{at}"),
            (false, count) => {
                format!(
                    "The largest part is {count} waits of several threads, {who} among them,{at}"
                )
            }
        };
        let sum = match pair.count {
            1 => length(pair.total_ns),
            _ => format!(
                "{} in total, at most {} at a time",
                length(pair.total_ns),
                length(pair.max_ns)
            ),
        };
        text.push_str(&format!(" {whose} for {for_whom}{seen}: {sum}."));
        threads = vec![waiting, holding];
        evidence.push(words.evidence(waiting, pair.waiter, format!("waited for {name}")));
        if let Some(holder) = pair.holder {
            evidence.push(words.evidence(holding, holder, format!("had taken {name}")));
        } else if let Some(ended) = pair.ended {
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
        // The waits were seen; the reader decides whether they matter. A sample is not proof,
        // because another recording may contain another sample.
        proved: words.clock_is_sound
            && !words.model.recording.is_sample()
            && doubt(words).is_empty()
            && is_own(object.waits.total_ns, object.stood_ns),
        threads,
        circle: false,
        objects: vec![words.named(index)],
        facts: Facts::Sentences(text),
        evidence,
    }
}

fn longest_wait(words: &Words<'_>, object: &Object) -> Option<crate::model::sync::UseIndex> {
    let uses = object.uses.iter().copied();
    uses.max_by_key(|used| words.uses[used.0].waits.total_ns)
}
