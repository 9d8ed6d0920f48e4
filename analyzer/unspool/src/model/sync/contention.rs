//! Who made whom wait: one sum for each place where it was waited, place where the lock had been taken, and identities of both.

use foldhash::HashMap;

use super::objects::{Contention, Objects, UseIndex};
use crate::model::ThreadIndex;
use crate::model::calls::PathId;

/// A wait that a holder is to pair for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContendedWait {
    pub(super) waiter: UseIndex,
    /// Where the holder had taken it, if that was seen.
    pub(super) holder: Option<UseIndex>,
    /// Otherwise, where it ended the wait.
    pub(super) ended: Option<PathId>,
    /// Identities of both.
    pub(super) identities: (usize, usize),
    /// Both.
    pub(super) threads: (ThreadIndex, ThreadIndex),
    pub(super) ns: u64,
}

/// What waits are summed up by: [`ContendedWait`]'s waiter, holder, end and identities.
type SumKey = (UseIndex, Option<UseIndex>, Option<PathId>, usize, usize);

/// All contention so far.
#[derive(Debug, Default)]
pub(super) struct ContentionSums {
    sums: HashMap<SumKey, Contention>,
}

impl ContentionSums {
    pub(super) fn add(&mut self, wait: &ContendedWait) {
        let (waiting, holding) = wait.identities;
        let pair = self
            .sums
            .entry((wait.waiter, wait.holder, wait.ended, waiting, holding))
            .or_insert(Contention {
                waiter: wait.waiter,
                holder: wait.holder,
                ended: wait.ended,
                waiting,
                holding,
                count: 0,
                total_ns: 0,
                max_ns: 0,
                longest: wait.threads,
                for_one: true,
                by_one: true,
            });
        pair.for_one &= pair.longest.1 == wait.threads.1;
        pair.by_one &= pair.longest.0 == wait.threads.0;
        pair.count += 1;
        pair.total_ns = pair.total_ns.saturating_add(wait.ns);
        if wait.ns >= pair.max_ns {
            pair.max_ns = wait.ns;
            pair.longest = wait.threads;
        }
    }

    /// Puts them to their objects, the heaviest first.
    pub(super) fn assign_to(&mut self, objects: &mut Objects) {
        let mut contention: Vec<Contention> =
            std::mem::take(&mut self.sums).into_values().collect();
        contention.sort_by_key(|b| (std::cmp::Reverse(b.total_ns), b.waiter, b.holder, b.ended));
        for pair in contention {
            let object = objects.uses[pair.waiter.0].object;
            objects.objects[object.0].contention.push(pair);
        }
    }
}
