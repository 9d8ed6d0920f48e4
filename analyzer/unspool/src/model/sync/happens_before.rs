//! Which parts of two threads' lives can never be at the same time: what one does before a creation that leads to the other,
//! or after a join of it, and what both do on different sides of a barrier.
//!
//! That one had ended when the other began, or that they took turns at a lock, was perhaps chance, and keeps nobody apart.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use super::objects::ObjectIndex;
use crate::model::{Model, ThreadIndex};

/// Rounds of a barrier that are told apart.
const ROUNDS: usize = 4096;

/// So many answers are kept, each as long as there are threads.
const KEPT: usize = 256;

/// In which rounds of which barriers something happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rounds(BTreeMap<ObjectIndex, BTreeSet<u64>>);

impl Rounds {
    /// It happened in those, too.
    pub(super) fn add(&mut self, others: &Rounds) {
        for (barrier, rounds) in &others.0 {
            let mine = self.0.entry(*barrier).or_default();
            if mine.len() < ROUNDS {
                mine.extend(rounds);
            }
        }
    }
}

/// All barriers, and how often each thread has passed them.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    /// For how many threads each was made, where that was seen.
    sizes: HashMap<ObjectIndex, u64>,
    passed: HashMap<ObjectIndex, BTreeMap<ThreadIndex, u64>>,
}

impl Barriers {
    /// A barrier is made for so many threads.
    pub(super) fn made(&mut self, barrier: ObjectIndex, size: u64) {
        self.sizes.insert(barrier, size);
    }

    /// A thread goes on behind a barrier.
    pub(super) fn pass(&mut self, thread: ThreadIndex, barrier: ObjectIndex) {
        let threads = self.passed.entry(barrier).or_default();
        *threads.entry(thread).or_default() += 1;
    }

    /// Where a thread is now.
    pub(super) fn rounds(&self, thread: ThreadIndex) -> Rounds {
        let barriers = self.sizes.keys().map(|barrier| {
            let threads = self.passed.get(barrier);
            let passed = threads.and_then(|threads| threads.get(&thread));
            (*barrier, BTreeSet::from([passed.copied().unwrap_or(0)]))
        });
        Rounds(barriers.collect())
    }

    /// Some barrier that both threads always pass lies between whatever the two did in these rounds.
    fn part(&self, a: (ThreadIndex, &Rounds), b: (ThreadIndex, &Rounds)) -> bool {
        self.sizes.iter().any(|(barrier, size)| {
            let (Some(threads), Some(of_a), Some(of_b)) = (
                self.passed.get(barrier),
                a.1.0.get(barrier),
                b.1.0.get(barrier),
            ) else {
                return false;
            };
            // If others pass it, too, its rounds are not the same for all.
            let always = threads.len() as u64 == *size
                && threads.contains_key(&a.0)
                && threads.contains_key(&b.0);
            always && of_a.is_disjoint(of_b)
        })
    }
}

/// When something happened first and last in a thread, and in which rounds.
pub(super) type Times<'a> = (ThreadIndex, u64, u64, &'a Rounds);

/// For each thread, from when on something had to be later.
type Later = Rc<Vec<u64>>;

/// Creations and joins, in the order of time.
pub(super) struct HappensBefore<'a> {
    barriers: &'a Barriers,
    /// When, from which thread at the latest when, to which thread.
    passages: Vec<(u64, (ThreadIndex, u64), ThreadIndex)>,
    /// Of each thread and time that was asked about.
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
                // Between its call and its return, the joiner does nothing else.
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

    /// Whether both could have happened at the same time, in different threads.
    pub(super) fn can_meet(&self, a: Times<'_>, b: Times<'_>) -> bool {
        a.0 != b.0
            && !self.comes_after(a, b)
            && !self.comes_after(b, a)
            && !self.barriers.part((a.0, a.3), (b.0, b.3))
    }

    /// Whether all of `b` had to come after all of `a`.
    fn comes_after(&self, a: Times<'_>, b: Times<'_>) -> bool {
        let later = self.later(a.0, a.2);
        later.get(b.0.0).is_some_and(|later| *later <= b.1)
    }

    /// Follows each passage once; whether anything has changed.
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
        if known.len() >= KEPT {
            known.clear();
        }
        let later = known.entry((thread, at)).or_insert_with(|| {
            let mut later = vec![u64::MAX; self.threads];
            if let Some(here) = later.get_mut(thread.0) {
                *here = at;
            }
            // A join begins before what it waits for: mostly the second time nothing changes.
            while self.follow(&mut later) {}
            Rc::new(later)
        });
        Rc::clone(later)
    }
}
