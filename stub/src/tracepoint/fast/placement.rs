//! Schedules the decision which tracepoints get jumps.
//!
//! The decision considers all tracepoints while every thread is stopped. Clients change tracepoints
//! one by one, perhaps a hundred in a row. While the program runs, each gets a trap at once. All
//! get their jumps together, when the changes cease or when the client queries the tracepoints'
//! state. If the program is stopped, the decision is made when it resumes.

use std::time::{Duration, Instant};

/// Time without changes after which the client is taken to be done. Twenty milliseconds cover a
/// round trip, also to a slow board.
const QUIET_TIME: Duration = Duration::from_millis(20);
/// Least time for which the program runs between two decisions, as a multiple of the time that the
/// last one took.
const REST_FACTOR: u32 = 4;
/// Maximum number of retries because a thread was inside a jump. The delay doubles each time.
const MAX_RETRIES: u32 = 6;

/// The time of the next decision.
#[derive(Default)]
pub(crate) struct JumpPlacement {
    due: Option<Instant>,
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
    }

    /// Ends the decision, which took this long.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.rests_until = Some(Instant::now() + REST_FACTOR * took);
    }
}
