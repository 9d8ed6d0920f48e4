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
    /// The counts of all earlier pauses together.
    counted: Count,
}

/// Hits, and the program's processor time meanwhile.
#[derive(Clone, Copy, Default)]
struct Count {
    hits: u64,
    used: u64,
}

/// A pause, during which the probe's trap is removed.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    pub(super) since: u64,
    /// The program's processor time when the pause began.
    pub(super) program: u64,
    /// The time that it had used since the count began.
    used: u64,
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
            let mut rate = self.count(&pause);
            if rate.used < MIN_RATE_TIME {
                // With a small budget, each count may be too short. Together they are long enough.
                rate.hits += self.counted.hits;
                rate.used += self.counted.used;
            }
            let used = u128::from(program.saturating_sub(pause.program));
            let rate_time = rate.used.max(MIN_RATE_TIME);
            let hits = used * u128::from(rate.hits) / u128::from(rate_time);
            missed.hits += hits as u64;
        }
        missed
    }

    /// The count that a pause ended. Its last hits may be counted during the pause.
    fn count(&self, pause: &Pause) -> Count {
        Count {
            hits: self.hits,
            used: pause.used,
        }
    }

    /// Begins a pause.
    pub(super) fn pause(&mut self, now: u64, program: u64) {
        self.paused = Some(Pause {
            since: now,
            program,
            used: program.saturating_sub(self.since.1),
        });
        self.missed.pauses += 1;
    }

    /// Ends the pause, if there is one.
    pub(super) fn resume(&mut self, now: u64, program: u64) {
        self.missed = self.missed(now, program);
        if let Some(pause) = self.paused.take() {
            let count = self.count(&pause);
            self.counted.hits += count.hits;
            self.counted.used += count.used;
        }
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
