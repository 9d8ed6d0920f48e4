//! Sums up contention by the waiter's place, the holder's place, and the identities of both
//! threads.

use foldhash::HashMap;

use super::objects::{Contention, Objects, UseIndex};
use crate::model::ThreadIndex;
use crate::model::calls::PathId;
use crate::model::schedule::{CallIndex, add_time};

/// A wait that is charged to the thread that held the object.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContendedWait {
    pub(super) waiter: UseIndex,
    /// Where the holder had taken the object, if that was recorded.
    pub(super) holder: Option<UseIndex>,
    /// Otherwise, where the holder ended the wait.
    pub(super) ended: Option<PathId>,
    /// Identities of the waiter and the holder.
    pub(super) identities: (usize, usize),
    /// The waiter and the holder.
    pub(super) threads: (ThreadIndex, ThreadIndex),
    pub(super) ns: u64,
}

/// The key of a sum: [`ContendedWait`]'s waiter, holder, end and identities.
type SumKey = (UseIndex, Option<UseIndex>, Option<PathId>, usize, usize);

/// The sums of contention so far.
#[derive(Debug, Default)]
pub(super) struct ContentionSums {
    sums: HashMap<SumKey, Contention>,
}

impl ContentionSums {
    /// Adds a wait during which the holder was blocked in these system calls.
    pub(super) fn add(
        &mut self,
        wait: &ContendedWait,
        calls: impl IntoIterator<Item = (CallIndex, u64)>,
    ) {
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
                holder_calls: Vec::new(),
            });
        pair.for_one &= pair.longest.1 == wait.threads.1;
        pair.by_one &= pair.longest.0 == wait.threads.0;
        for (call, ns) in calls {
            add_time(&mut pair.holder_calls, call, ns);
        }
        pair.count += 1;
        pair.total_ns = pair.total_ns.saturating_add(wait.ns);
        if wait.ns >= pair.max_ns {
            pair.max_ns = wait.ns;
            pair.longest = wait.threads;
        }
    }

    /// Moves the sums to their objects, the longest total first.
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
