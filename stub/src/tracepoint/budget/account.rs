//! What is known of one probe: how often it is hit, what that costs, and what its pauses have
//! missed.

use crate::sys::{Tid, processor_ns_of};

/// How often a place is hit is known from so much of the program's processor time.
const LEAST_USED: u64 = 1_000_000;

/// What has been missed at one place.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Missed {
    pub(crate) pauses: u64,
    pub(crate) paused_ns: u64,
    /// About so many hits.
    pub(crate) hits: u64,
}

/// One probe's hits since it was last planted, and its pauses.
#[derive(Default)]
pub(super) struct Account {
    /// Since when hits are counted, by the clock and by the program's processor time.
    pub(super) since: (u64, u64),
    pub(super) hits: u64,
    /// The same, and half of what it was before, and so on.
    pub(super) recent: u64,
    /// What these have cost.
    pub(super) heat: u64,
    /// The budget does not touch it.
    pub(super) needed: bool,
    pub(super) paused: Option<Pause>,
    pub(super) missed: Missed,
}

/// A probe's trap is out.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    pub(super) since: u64,
    /// The program's processor time then.
    pub(super) program: u64,
    /// So much of it was used by so many hits before.
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
            // Hits that were taken all at once tell no rate.
            if pause.used >= LEAST_USED {
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
    /// Which program; `None`: there is no telling.
    pub(crate) of: Option<Tid>,
    /// As it was last; a program that has ended cannot be asked.
    pub(super) last: u64,
}

impl ProgramTime {
    pub(super) fn now(&mut self) -> u64 {
        let now = self.of.and_then(processor_ns_of);
        self.last = self.last.max(now.unwrap_or(0));
        self.last
    }
}
