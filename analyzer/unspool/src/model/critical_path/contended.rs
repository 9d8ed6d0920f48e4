//! Marks the parts of the path in which its thread held a lock that other threads waited for.
//!
//! The walk knows only the last wait that led it to a thread. A thread that takes a lock again and
//! again can keep others waiting for longer, because they find it taken again.

use std::collections::HashMap;

use super::{Awaited, Facts, Segment};
use crate::model::sync::{ObjectIndex, WaitSpan};
use crate::model::thread::ThreadIndex;

/// A time in which others waited for a lock that a thread held.
#[derive(Clone, Copy, Debug)]
struct Contended {
    from_ns: u64,
    to_ns: u64,
    lock: ObjectIndex,
}

/// Divides the segments at the beginnings and ends of such times, and names the lock.
pub(super) fn mark(facts: &Facts<'_>, segments: Vec<Segment>) -> Vec<Segment> {
    let holders = by_holder(facts);
    let mut marked = Vec::with_capacity(segments.len());
    for mut segment in segments {
        let times = holders.get(&segment.thread);
        let times = times.filter(|_| segment.awaited.is_none());
        let times = times.map_or(&[][..], Vec::as_slice);
        let first = times.partition_point(|time| time.to_ns <= segment.from_ns);
        for time in &times[first..] {
            if time.from_ns >= segment.to_ns {
                break;
            }
            if segment.from_ns < time.from_ns {
                marked.push(Segment {
                    to_ns: time.from_ns,
                    ..segment
                });
                segment.from_ns = time.from_ns;
            }
            let to_ns = time.to_ns.min(segment.to_ns);
            marked.push(Segment {
                to_ns,
                awaited: Some(Awaited::Object(time.lock)),
                ..segment
            });
            segment.from_ns = to_ns;
        }
        if segment.from_ns < segment.to_ns {
            marked.push(segment);
        }
    }
    marked.dedup_by(|next, kept| {
        let is_same = (kept.thread, kept.state, kept.function, kept.awaited)
            == (next.thread, next.state, next.function, next.awaited);
        if is_same {
            kept.to_ns = next.to_ns;
        }
        is_same
    });
    marked
}

/// These times of each thread, in order and without overlaps.
fn by_holder(facts: &Facts<'_>) -> HashMap<ThreadIndex, Vec<Contended>> {
    let mut times: HashMap<ThreadIndex, Vec<Contended>> = HashMap::new();
    for wait in facts.waits {
        let lock = facts.object(wait.used);
        let lock = lock.filter(|lock| facts.objects[lock.0].is_lock());
        if let Some((holder, lock)) = holder(wait).zip(lock) {
            let (waiter, from_ns) = (wait.thread, wait.from_ns);
            // From its wake-up on, the waiter only waits for a processor.
            let woken = facts.schedule.runnable_within(waiter, from_ns, wait.to_ns);
            let to_ns = woken.last().map_or(wait.to_ns, |(from, _)| from);
            times.entry(holder).or_default().push(Contended {
                from_ns,
                to_ns,
                lock,
            });
        }
    }
    for times in times.values_mut() {
        times.sort_by_key(|time| time.from_ns);
        let mut last_ns = 0;
        for time in times.iter_mut() {
            time.from_ns = time.from_ns.max(last_ns);
            last_ns = last_ns.max(time.to_ns);
        }
        times.retain(|time| time.from_ns < time.to_ns);
    }
    times
}

/// The thread that a wait was for, from the beginning to the end as far as known.
fn holder(wait: &WaitSpan) -> Option<ThreadIndex> {
    let holder = wait.holder.or(wait.waker)?;
    let ended = wait.waker.is_none_or(|waker| waker == holder);
    (ended && holder != wait.thread).then_some(holder)
}
