//! Happens-before relations that always hold between parts of two threads.
//!
//! A thread's steps before a creation come before the created thread's; its steps after a join come
//! after the joined thread's. A barrier orders the steps on its two sides.
//!
//! Two threads may also have run one after the other, or have taken a lock in turns, by chance.
//! That orders nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use super::objects::ObjectIndex;
use crate::model::{Model, ThreadIndex};

/// Maximum number of rounds of a barrier that are kept apart.
const MAX_ROUNDS: usize = 4096;

/// Maximum number of cached answers, each with one entry per thread.
const MAX_CACHED_ANSWERS: usize = 256;

/// The rounds of each barrier in which an event happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rounds(BTreeMap<ObjectIndex, BTreeSet<u64>>);

impl Rounds {
    /// Adds the rounds of another occurrence of the event.
    pub(super) fn add(&mut self, others: &Rounds) {
        for (barrier, rounds) in &others.0 {
            let mine = self.0.entry(*barrier).or_default();
            if mine.len() < MAX_ROUNDS {
                mine.extend(rounds);
            }
        }
    }
}

/// All barriers, and how often each thread has passed each of them.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    /// The number of threads that each barrier is made for, if its creation was recorded.
    sizes: HashMap<ObjectIndex, u64>,
    passed: HashMap<ObjectIndex, BTreeMap<ThreadIndex, u64>>,
}

impl Barriers {
    /// Notes the number of threads that a barrier is made for.
    pub(super) fn made(&mut self, barrier: ObjectIndex, size: u64) {
        self.sizes.insert(barrier, size);
    }

    /// Notes that a thread passes a barrier.
    pub(super) fn pass(&mut self, thread: ThreadIndex, barrier: ObjectIndex) {
        let threads = self.passed.entry(barrier).or_default();
        *threads.entry(thread).or_default() += 1;
    }

    /// The current round of a thread at every barrier.
    pub(super) fn rounds(&self, thread: ThreadIndex) -> Rounds {
        let barriers = self.sizes.keys().map(|barrier| {
            let threads = self.passed.get(barrier);
            let passed = threads.and_then(|threads| threads.get(&thread));
            (*barrier, BTreeSet::from([passed.copied().unwrap_or(0)]))
        });
        Rounds(barriers.collect())
    }

    /// True if some barrier that both threads always pass separates their events in these rounds.
    fn part(&self, a: (ThreadIndex, &Rounds), b: (ThreadIndex, &Rounds)) -> bool {
        self.sizes.iter().any(|(barrier, size)| {
            let (Some(threads), Some(of_a), Some(of_b)) = (
                self.passed.get(barrier),
                a.1.0.get(barrier),
                b.1.0.get(barrier),
            ) else {
                return false;
            };
            // If further threads pass it, its rounds differ between threads.
            let always = threads.len() as u64 == *size
                && threads.contains_key(&a.0)
                && threads.contains_key(&b.0);
            always && of_a.is_disjoint(of_b)
        })
    }
}

/// A thread, the first and last time of an event in it, and the rounds it occurred in.
pub(super) type Times<'a> = (ThreadIndex, u64, u64, &'a Rounds);

/// For each thread, the time from which its events come later than a given event.
type Later = Rc<Vec<u64>>;

/// Creations and joins, in the order of time.
pub(super) struct HappensBefore<'a> {
    barriers: &'a Barriers,
    /// Time of each edge, its source thread with the latest time it covers, and its target thread.
    passages: Vec<(u64, (ThreadIndex, u64), ThreadIndex)>,
    /// Cached answers, by thread and time.
    later: RefCell<HashMap<(ThreadIndex, u64), Later>>,
    threads: usize,
}

impl<'a> HappensBefore<'a> {
    pub(super) fn new(model: &Model, barriers: &'a Barriers) -> HappensBefore<'a> {
        let mut passages = Vec::new();
        for (index, thread) in model.threads.iter().enumerate() {
            let index = ThreadIndex(index);
            if let (Some(creator), Some(at)) = (thread.creator(), thread.created_ns) {
                passages.push((at, (creator, at), index));
            }
            if let (Some((joiner, at)), Some(ended)) =
                (thread.joiner.zip(thread.joined_ns), thread.ended_ns)
            {
                // The joiner does nothing else between its call and its return.
                passages.push((at, (index, ended), joiner));
            }
        }
        passages.sort_unstable();
        HappensBefore {
            barriers,
            passages,
            later: RefCell::new(HashMap::new()),
            threads: model.threads.len(),
        }
    }

    /// True if both events could happen at the same time, in different threads.
    pub(super) fn can_meet(&self, a: Times<'_>, b: Times<'_>) -> bool {
        a.0 != b.0
            && !self.comes_after(a, b)
            && !self.comes_after(b, a)
            && !self.barriers.part((a.0, a.3), (b.0, b.3))
    }

    /// True if all of `b` had to come after all of `a`.
    fn comes_after(&self, a: Times<'_>, b: Times<'_>) -> bool {
        let later = self.later(a.0, a.2);
        later.get(b.0.0).is_some_and(|later| *later <= b.1)
    }

    /// Follows each edge once; returns true if anything changed.
    fn follow(&self, later: &mut [u64]) -> bool {
        let mut changed = false;
        for (when, (from, until), to) in &self.passages {
            if later.get(from.0).is_some_and(|later| *later <= *until)
                && let Some(there) = later.get_mut(to.0)
                && *when < *there
            {
                *there = *when;
                changed = true;
            }
        }
        changed
    }

    fn later(&self, thread: ThreadIndex, at: u64) -> Later {
        let mut known = self.later.borrow_mut();
        if known.len() >= MAX_CACHED_ANSWERS {
            known.clear();
        }
        let later = known.entry((thread, at)).or_insert_with(|| {
            let mut later = vec![u64::MAX; self.threads];
            if let Some(here) = later.get_mut(thread.0) {
                *here = at;
            }
            // A join begins before its thread ends, so one more pass may be needed; usually it
            // changes nothing.
            while self.follow(&mut later) {}
            Rc::new(later)
        });
        Rc::clone(later)
    }
}
