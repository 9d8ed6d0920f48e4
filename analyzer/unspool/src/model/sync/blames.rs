//! Who made whom wait: one sum for each place where it was waited, place where the lock had been taken, and identities of both.

use foldhash::HashMap;

use super::objects::{Blame, Objects, UseIndex};
use crate::model::ThreadIndex;
use crate::model::calls::PathId;

/// A wait that a holder is to blame for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blamed {
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

/// What waits are summed up by: [`Blamed`]'s waiter, holder, end and identities.
type Alike = (UseIndex, Option<UseIndex>, Option<PathId>, usize, usize);

/// All blames so far.
#[derive(Debug, Default)]
pub(super) struct Blames {
    sums: HashMap<Alike, Blame>,
}

impl Blames {
    pub(super) fn add(&mut self, wait: &Blamed) {
        let (waiting, holding) = wait.identities;
        let blame = self
            .sums
            .entry((wait.waiter, wait.holder, wait.ended, waiting, holding))
            .or_insert(Blame {
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
        blame.for_one &= blame.longest.1 == wait.threads.1;
        blame.by_one &= blame.longest.0 == wait.threads.0;
        blame.count += 1;
        blame.total_ns = blame.total_ns.saturating_add(wait.ns);
        if wait.ns >= blame.max_ns {
            blame.max_ns = wait.ns;
            blame.longest = wait.threads;
        }
    }

    /// Puts them to their objects, the heaviest first.
    pub(super) fn lay(&mut self, objects: &mut Objects) {
        let mut blames: Vec<Blame> = std::mem::take(&mut self.sums).into_values().collect();
        blames.sort_by_key(|b| (std::cmp::Reverse(b.total_ns), b.waiter, b.holder, b.ended));
        for blame in blames {
            let object = objects.uses[blame.waiter.0].object;
            objects.objects[object.0].blames.push(blame);
        }
    }
}
