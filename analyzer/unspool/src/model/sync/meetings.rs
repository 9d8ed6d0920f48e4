//! Finds out whether threads have taken two locks in opposite orders at the same time.
//!
//! A thread may be kept from doing so by something that is not recorded, such as a spin lock, a
//! file lock or a message. It then asks for its first lock only when the other thread has released
//! both. Threads that nothing keeps apart ask at any time, also while the other holds its locks.

use foldhash::HashMap;

use super::lock_order::MAX_EDGES;
use super::objects::ObjectIndex;
use crate::model::ThreadIndex;

/// From this number of meetings that chance would have brought, it is no chance that there was
/// none: the probability of that is 5 %.
const MIN_EXPECTED: f64 = 3.0;

/// A thread's work with a pair of locks: from its call that takes the first one, until the release
/// of that lock. In nanoseconds since the recording began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) thread: ThreadIndex,
    pub(super) asked_ns: u64,
    pub(super) released_ns: u64,
}

/// All works with a pair of locks, in one order.
#[derive(Debug, Default)]
struct Works {
    count: u64,
    total_ns: u64,
    first_ns: u64,
    /// The latest one, and the latest one of another thread.
    last: [Option<Work>; 2],
    /// True if one of them was at the same time as one in the opposite order.
    met: bool,
}

impl Works {
    fn last_ns(&self) -> u64 {
        self.last[0].map_or(0, |last| last.released_ns)
    }

    /// The number of its beginnings that fall into a work of `other` by chance, within `span_ns`.
    fn expected_in(&self, other: &Works, span_ns: u64) -> f64 {
        self.count as f64 * other.total_ns as f64 / span_ns.max(1) as f64
    }
}

/// The works with each pair of locks, by the held and the taken one.
#[derive(Debug, Default)]
pub(super) struct Meetings(HashMap<(ObjectIndex, ObjectIndex), Works>);

impl Meetings {
    /// Notes a work. The caller adds them in the order of their ends.
    pub(super) fn add(&mut self, held: ObjectIndex, taken: ObjectIndex, work: Work) {
        let opposite = self.0.get(&(taken, held)).map(|works| works.last);
        let met = opposite
            .into_iter()
            .flatten()
            .flatten()
            .any(|other| other.thread != work.thread && other.released_ns > work.asked_ns);
        if self.0.len() >= MAX_EDGES && !self.0.contains_key(&(held, taken)) {
            return;
        }
        let works = self.0.entry((held, taken)).or_default();
        let is_same = |last: Work| (last.thread, last.asked_ns) == (work.thread, work.asked_ns);
        if works.last[0].is_some_and(is_same) {
            // It takes the second lock again.
            return;
        }
        if works.count == 0 {
            works.first_ns = work.asked_ns;
        }
        works.count += 1;
        works.total_ns += work.released_ns.saturating_sub(work.asked_ns);
        works.met |= met;
        if works.last[0].is_some_and(|last| last.thread != work.thread) {
            works.last[1] = works.last[0];
        }
        works.last[0] = Some(work);
    }

    /// True if two locks were taken in both orders so often that threads would have met by chance,
    /// and none have.
    pub(super) fn are_kept_apart(&self, a: ObjectIndex, b: ObjectIndex) -> bool {
        let (Some(one), Some(other)) = (self.0.get(&(a, b)), self.0.get(&(b, a))) else {
            return false;
        };
        let begin_ns = one.first_ns.min(other.first_ns);
        let span_ns = one.last_ns().max(other.last_ns()).saturating_sub(begin_ns);
        let expected = one.expected_in(other, span_ns) + other.expected_in(one, span_ns);
        !one.met && !other.met && expected >= MIN_EXPECTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ObjectIndex = ObjectIndex(0);
    const B: ObjectIndex = ObjectIndex(1);

    /// Two threads in opposite orders, in turns; each asks this long before the other releases.
    fn in_turns(rounds: u64, pause_ns: u64, early_ns: u64) -> Meetings {
        let mut meetings = Meetings::default();
        for round in 0..rounds {
            for (thread, held, taken) in [(0, A, B), (1, B, A)] {
                let begin = (2 * round + thread) * (100 + pause_ns) + 1000;
                let work = Work {
                    thread: ThreadIndex(thread as usize),
                    asked_ns: begin - early_ns,
                    released_ns: begin + 100,
                };
                meetings.add(held, taken, work);
            }
        }
        meetings
    }

    #[test]
    fn threads_that_never_meet_are_kept_apart() {
        assert!(in_turns(10, 0, 0).are_kept_apart(A, B));
        assert!(in_turns(10, 0, 0).are_kept_apart(B, A));
        assert!(!in_turns(10, 0, 1).are_kept_apart(A, B));
    }

    #[test]
    fn rare_works_may_miss_each_other_by_chance() {
        assert!(!in_turns(10, 1000, 0).are_kept_apart(A, B));
        assert!(in_turns(100, 1000, 0).are_kept_apart(A, B));
        assert!(!in_turns(2, 0, 0).are_kept_apart(A, B));
    }

    #[test]
    fn a_thread_does_not_meet_itself() {
        let mut meetings = Meetings::default();
        for (held, taken) in [(A, B), (B, A)] {
            let work = Work {
                thread: ThreadIndex(0),
                asked_ns: 0,
                released_ns: 100,
            };
            meetings.add(held, taken, work);
        }
        assert!(!meetings.0[&(B, A)].met);
    }
}
