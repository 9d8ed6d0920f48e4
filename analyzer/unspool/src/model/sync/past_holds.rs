//! The recent holds of locks that threads wait for.
//!
//! A wait may last for the holds of several threads, one after the other.

use std::collections::VecDeque;

use foldhash::HashMap;

use super::objects::ObjectIndex;
use crate::model::ThreadIndex;

/// Maximum number of holds kept per lock.
const MAX_HOLDS: usize = 256;

/// A thread's hold of a lock, or the part of it that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PastHold {
    pub(super) thread: ThreadIndex,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// The holds of all locks, in the order in which they ended.
#[derive(Debug, Default)]
pub(super) struct PastHolds(HashMap<ObjectIndex, VecDeque<PastHold>>);

impl PastHolds {
    /// Adds a hold that has ended.
    pub(super) fn add(&mut self, lock: ObjectIndex, hold: PastHold) {
        let holds = self.0.entry(lock).or_default();
        if holds.len() == MAX_HOLDS {
            holds.pop_front();
        }
        holds.push_back(hold);
    }

    /// The parts of a lock's holds that lie between two moments.
    pub(super) fn within(
        &self,
        lock: ObjectIndex,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = PastHold> {
        let holds = self
            .0
            .get(&lock)
            .into_iter()
            .flat_map(|holds| holds.iter().rev());
        let holds = holds.take_while(move |hold| hold.to_ns > from_ns);
        let parts = holds.map(move |hold| PastHold {
            thread: hold.thread,
            from_ns: hold.from_ns.max(from_ns),
            to_ns: hold.to_ns.min(to_ns),
        });
        parts.filter(|part| part.from_ns < part.to_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_the_parts_of_the_holds_in_it() {
        let lock = ObjectIndex(3);
        let mut past = PastHolds::default();
        let hold = |thread, from_ns, to_ns| PastHold {
            thread: ThreadIndex(thread),
            from_ns,
            to_ns,
        };
        for n in 0..300 {
            past.add(lock, hold(n as usize, 10 * n, 10 * n + 9));
        }
        let parts: Vec<PastHold> = past.within(lock, 2975, 2995).collect();
        assert_eq!(
            parts,
            [
                hold(299, 2990, 2995),
                hold(298, 2980, 2989),
                hold(297, 2975, 2979)
            ]
        );
        assert_eq!(past.within(lock, 0, 5000).count(), MAX_HOLDS);
        assert_eq!(past.within(ObjectIndex(1), 0, 5000).count(), 0);
    }
}
