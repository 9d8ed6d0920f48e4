//! What is missing of locks that are taken and given up, at each moment of the replay.
//!
//! Recording within a budget pauses probes for moments. What is said of a lock must not rest on what may have happened
//! in one: a hold may really be two, with a release and an acquisition that nobody saw between them.

use unspool_capture::GapKind;

use crate::model::calls::{Calls, FunctionId};
use crate::primitives::{self, Kind, Operation};

/// What was missing when a lock was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    releases: u64,
    acquisitions: u64,
}

/// Operations of one sort, on all locks of a kind.
#[derive(Debug, Default)]
struct Sort {
    /// How many of their probes are paused.
    paused: u32,
    /// How often that has changed.
    changes: u64,
}

impl Sort {
    fn change(&mut self, gap: GapKind) {
        self.changes += 1;
        match gap {
            GapKind::Paused => self.paused += 1,
            GapKind::Resumed => self.paused = self.paused.saturating_sub(1),
            GapKind::Dropped | GapKind::Unspecified => {}
        }
    }

    /// Differs from any later one if something is missing in between.
    fn stamp(&self) -> u64 {
        if self.paused > 0 {
            u64::MAX
        } else {
            self.changes
        }
    }

    fn missing_since(&self, stamp: u64) -> bool {
        self.paused > 0 || self.changes != stamp
    }
}

/// What is missing of mutexes and of read-write locks.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// For each of the two, releases and acquisitions.
    kinds: [(Sort, Sort); 2],
}

impl Gaps {
    /// Beginnings or `ends` of calls of these functions are missing, or no longer.
    pub(super) fn change(
        &mut self,
        calls: &Calls,
        functions: &[FunctionId],
        ends: bool,
        gap: GapKind,
    ) {
        for function in functions {
            let function = calls.function(*function);
            let Some(primitive) = primitives::find(&function.name).filter(|_| !function.futex)
            else {
                continue;
            };
            // A wait gives up a mutex when it begins, and takes it when it ends.
            let waits = primitive.operation == Operation::Wait && primitive.mutex.is_some();
            let kind = if waits { Kind::Mutex } else { primitive.kind };
            let Some((releases, acquisitions)) = of(&mut self.kinds, kind) else {
                continue;
            };
            if primitive.operation.acquires() || waits && ends {
                acquisitions.change(gap);
            } else if !ends {
                releases.change(gap);
            }
        }
    }

    /// To be kept with a lock that is taken now.
    pub(super) fn stamp(&self, kind: Kind) -> Stamp {
        self.of(kind)
            .map_or_else(Stamp::default, |(releases, acquisitions)| Stamp {
                releases: releases.stamp(),
                acquisitions: acquisitions.stamp(),
            })
    }

    /// Whether a lock that was taken then may have been given up since, unseen.
    pub(super) fn may_be_free(&self, kind: Kind, taken: Stamp) -> bool {
        self.of(kind)
            .is_some_and(|(releases, _)| releases.missing_since(taken.releases))
    }

    /// Whether it may have been given up and taken again.
    pub(super) fn may_be_two(&self, kind: Kind, taken: Stamp) -> bool {
        self.of(kind).is_some_and(|(_, acquisitions)| {
            self.may_be_free(kind, taken) && acquisitions.missing_since(taken.acquisitions)
        })
    }

    fn of(&self, kind: Kind) -> Option<&(Sort, Sort)> {
        match kind {
            Kind::Mutex => Some(&self.kinds[0]),
            Kind::Rwlock => Some(&self.kinds[1]),
            _ => None,
        }
    }
}

fn of(kinds: &mut [(Sort, Sort); 2], kind: Kind) -> Option<(&mut Sort, &mut Sort)> {
    let [mutex, rwlock] = kinds;
    let (releases, acquisitions) = match kind {
        Kind::Mutex => mutex,
        Kind::Rwlock => rwlock,
        _ => return None,
    };
    Some((releases, acquisitions))
}
