//! The record of one probe: its hits, their cost, and what it missed while it was paused.

use crate::sys::{Tid, processor_ns_of};

/// Least processor time, in nanoseconds, from which a probe's hit rate is estimated.
const MIN_RATE_TIME: u64 = 1_000_000;

/// The pauses at one address, and the hits missed in them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Missed {
    pub(crate) pauses: u64,
    pub(crate) paused_ns: u64,
    /// Estimated number of missed hits.
    pub(crate) hits: u64,
}

/// One probe's hits since its trap was last inserted, and its pauses.
#[derive(Default)]
pub(super) struct Account {
    /// Start of the current count, by the clock and by the program's processor time.
    pub(super) since: (u64, u64),
    pub(super) hits: u64,
    /// Recent hits: this count, and half as much of each earlier count as of the next.
    pub(super) recent: u64,
    /// Cost of the recent hits.
    pub(super) heat: u64,
    /// The budget does not pause it.
    pub(super) needed: bool,
    pub(super) paused: Option<Pause>,
    pub(super) missed: Missed,
}

/// A pause, during which the probe's trap is removed.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    pub(super) since: u64,
    /// The program's processor time when the pause began.
    pub(super) program: u64,
    /// Processor time and number of hits in the count before the pause.
    pub(super) used: u64,
    pub(super) hits: u64,
}

impl Account {
    pub(super) fn restart(&mut self, now: u64, program: u64) {
        (self.since, self.hits) = ((now, program), 0);
        self.recent /= 2;
        self.heat /= 2;
    }

    pub(super) fn missed(&self, now: u64, program: u64) -> Missed {
        let mut missed = self.missed;
        if let Some(pause) = self.paused {
            missed.paused_ns += now.saturating_sub(pause.since);
            let used = u128::from(program.saturating_sub(pause.program));
            // A batch of hits taken at one moment has no rate.
            if pause.used >= MIN_RATE_TIME {
                let hits = used * u128::from(pause.hits) / u128::from(pause.used);
                missed.hits += hits as u64;
            }
        }
        missed
    }
}

/// The processor time that the program has used.
#[derive(Default)]
pub(crate) struct ProgramTime {
    /// The process; `None` if its processor time cannot be read.
    pub(crate) of: Option<Tid>,
    /// The latest value, because a process that has ended has no value any more.
    pub(super) last: u64,
}

impl ProgramTime {
    pub(super) fn now(&mut self) -> u64 {
        let now = self.of.and_then(processor_ns_of);
        self.last = self.last.max(now.unwrap_or(0));
        self.last
    }
}
