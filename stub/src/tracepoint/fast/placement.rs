//! When it is decided anew where jumps can be.
//!
//! That decision looks at all tracepoints while every thread is stopped. Clients change tracepoints
//! one by one, a hundred in a row. While the program runs, each gets its trap at once, and all get
//! their jumps together: when no more changes come, or when the client asks how they stand. A
//! program that is halted gets them when it goes on.

use std::time::{Duration, Instant};

/// A client that has changed nothing for this long is done. It is one round trip, and longer on a
/// slow board.
const QUIET_TIME: Duration = Duration::from_millis(20);
/// The program runs for this many times as long as the last decision took, however slowly changes
/// come.
const REST_FACTOR: u32 = 4;
/// How often a decision is repeated because a thread was in the way; the delay doubles each time.
const MAX_RETRIES: u32 = 6;

/// The time of the next decision.
#[derive(Default)]
pub(crate) struct JumpPlacement {
    due: Option<Instant>,
    rests_until: Option<Instant>,
    retries: u32,
}

impl JumpPlacement {
    /// A client has changed a tracepoint while the program runs.
    pub(crate) fn schedule(&mut self) {
        self.retries = 0;
        let quiet = Instant::now() + QUIET_TIME;
        self.due = Some(self.rests_until.map_or(quiet, |rest| rest.max(quiet)));
    }

    /// A thread was in the way, and will have moved later.
    pub(crate) fn retry(&mut self) {
        if self.retries < MAX_RETRIES {
            self.due = Some(Instant::now() + QUIET_TIME * (1 << self.retries));
            self.retries += 1;
        }
    }

    /// When the next decision is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The decision is made now.
    pub(crate) fn begin(&mut self) {
        self.due = None;
    }

    /// The decision took this long.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.rests_until = Some(Instant::now() + REST_FACTOR * took);
    }
}
