//! Schedules the decision which tracepoints get jumps.
//!
//! The decision considers all tracepoints while every thread is stopped. Clients change tracepoints
//! one by one, perhaps a hundred in a row. While the program runs, each gets a trap at once. All
//! get their jumps together, when the changes cease or when the client queries the tracepoints'
//! state. If the program is stopped, the decision is made when it resumes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time without changes after which the client is taken to be done. Twenty milliseconds cover a
/// round trip, also to a slow board.
const QUIET_TIME: Duration = Duration::from_millis(20);
/// Least time for which the program runs between two decisions, as a multiple of the time that the
/// last one took.
const REST_FACTOR: u32 = 4;
/// Maximum number of retries because a thread was inside a jump. The delay doubles each time.
const MAX_RETRIES: u32 = 6;

/// The tracepoints, traps and jumps at the end of a decision.
#[derive(PartialEq, Eq)]
pub(crate) struct Placed {
    /// The addresses of tracepoints, and their breakpoint kinds.
    pub(crate) wanted: BTreeMap<u64, usize>,
    /// The addresses of all traps.
    pub(crate) traps: Vec<u64>,
    /// The addresses of all jumps.
    pub(crate) jumps: Vec<u64>,
}

/// The time of the next decision, and whether the last one still holds.
#[derive(Default)]
pub(crate) struct JumpPlacement {
    due: Option<Instant>,
    /// The result of the last decision, unless the same decision may have another result now.
    settled: Option<Placed>,
    rests_until: Option<Instant>,
    retries: u32,
}

impl JumpPlacement {
    /// Schedules a decision after a change while the program runs.
    pub(crate) fn schedule(&mut self) {
        self.retries = 0;
        let quiet = Instant::now() + QUIET_TIME;
        self.due = Some(self.rests_until.map_or(quiet, |rest| rest.max(quiet)));
    }

    /// Schedules another attempt, by which time the thread in the way should have moved.
    pub(crate) fn retry(&mut self) {
        if self.retries < MAX_RETRIES {
            self.due = Some(Instant::now() + QUIET_TIME * (1 << self.retries));
            self.retries += 1;
        }
    }

    /// Time of the next decision.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Starts the decision.
    pub(crate) fn begin(&mut self) {
        self.due = None;
        self.settled = None;
    }

    /// Records that a new decision would have this result again.
    pub(crate) fn settle(&mut self, placed: Placed) {
        self.settled = Some(placed);
    }

    /// Forgets the last decision, because a tracepoint has changed.
    pub(crate) fn unsettle(&mut self) {
        self.settled = None;
    }

    /// True if the last decision still holds. `now` returns the present state.
    pub(crate) fn is_settled(&self, now: impl FnOnce() -> Placed) -> bool {
        let settled = self.settled.as_ref();
        settled.is_some_and(|settled| *settled == now())
    }

    /// Ends the decision, which took this long.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.rests_until = Some(Instant::now() + REST_FACTOR * took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(jumps: &[u64]) -> Placed {
        Placed {
            wanted: BTreeMap::from([(0x1000, 1)]),
            traps: Vec::new(),
            jumps: jumps.to_vec(),
        }
    }

    #[test]
    fn a_decision_holds_until_something_changes() {
        let mut placement = JumpPlacement::default();
        assert!(!placement.is_settled(|| placed(&[0x1000])));
        placement.settle(placed(&[0x1000]));
        assert!(placement.is_settled(|| placed(&[0x1000])));
        assert!(!placement.is_settled(|| placed(&[])));
        placement.unsettle();
        assert!(!placement.is_settled(|| placed(&[0x1000])));
        placement.settle(placed(&[0x1000]));
        placement.begin();
        assert!(!placement.is_settled(|| placed(&[0x1000])));
    }
}
