//! The record of one probe: its hits, their cost, and what it missed while it was paused.

use crate::sys::{Tid, processor_ns_of};

/// Processor time, in nanoseconds, that the program needs for a few hits at most. If it has used
/// less, the hit rate is taken as that of this time, because a burst has a much higher one.
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
    /// All counts that a pause ended.
    pub(super) counted: Count,
}

/// Hits, and the program's processor time meanwhile.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) hits: u64,
    pub(super) used: u64,
}

/// A pause, during which the probe's trap is removed.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    pub(super) since: u64,
    /// The program's processor time when the pause began.
    pub(super) program: u64,
    /// The count from which the missed hits are estimated.
    pub(super) rate: Count,
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
            let rate_time = pause.rate.used.max(MIN_RATE_TIME);
            let hits = used * u128::from(pause.rate.hits) / u128::from(rate_time);
            missed.hits += hits as u64;
        }
        missed
    }

    /// Begins a pause.
    pub(super) fn pause(&mut self, now: u64, program: u64) {
        let count = Count {
            hits: self.hits,
            used: program.saturating_sub(self.since.1),
        };
        self.counted.hits += count.hits;
        self.counted.used += count.used;
        // With a small budget, each count may be too short. Together they are long enough.
        let rate = match count.used >= MIN_RATE_TIME {
            true => count,
            false => self.counted,
        };
        self.paused = Some(Pause {
            since: now,
            program,
            rate,
        });
        self.missed.pauses += 1;
    }
}

/// The processor time that the program has used, without the time in collectors.
#[derive(Default)]
pub(crate) struct ProgramTime {
    /// The process; `None` if its processor time cannot be read.
    pub(crate) of: Option<Tid>,
    /// The latest value, because a process that has ended has no value any more.
    pub(super) last: u64,
    pub(super) collecting: u64,
}

impl ProgramTime {
    pub(super) fn now(&mut self) -> u64 {
        let now = self.of.and_then(processor_ns_of);
        self.last = self.last.max(now.unwrap_or(0));
        self.last.saturating_sub(self.collecting)
    }

    /// Excludes time that a collector took.
    pub(crate) fn exclude(&mut self, used: u64) {
        self.collecting += used;
    }
}
