//! Tracks the missing acquisitions and releases of locks at each moment of the replay.
//!
//! A recording within a budget pauses probes. Statements about a lock must not rest on events in
//! such a gap: one hold may really be two, with an unseen release and acquisition between them.

use unspool_capture::GapKind;

use crate::model::calls::{Calls, FunctionId};
use crate::primitives::{self, Kind, Operation};

/// The state of the gaps when a lock was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    releases: u64,
    acquisitions: u64,
}

/// Releases or acquisitions of all locks of a kind.
#[derive(Debug, Default)]
struct Sort {
    /// The number of their probes that are paused.
    paused: u32,
    /// The number of gaps and resumptions so far.
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

    /// Differs from every later stamp if an event may be missing in between.
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

/// The gaps of mutexes and of read-write locks.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// Releases and acquisitions, first of mutexes, then of read-write locks.
    kinds: [(Sort, Sort); 2],
}

impl Gaps {
    /// Notes that beginnings or `ends` of calls of these functions are missing, or no longer are.
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
            // A wait releases its mutex when it begins, and acquires it when it ends.
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

    /// The stamp to keep with a lock that is taken now.
    pub(super) fn stamp(&self, kind: Kind) -> Stamp {
        self.of(kind)
            .map_or_else(Stamp::default, |(releases, acquisitions)| Stamp {
                releases: releases.stamp(),
                acquisitions: acquisitions.stamp(),
            })
    }

    /// True if a lock that was `taken` may have been released since, unseen.
    pub(super) fn may_be_free(&self, kind: Kind, taken: Stamp) -> bool {
        self.of(kind)
            .is_some_and(|(releases, _)| releases.missing_since(taken.releases))
    }

    /// True if the lock may have been released and acquired again.
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
