//! Converts times of the processor's clock to the monotonic clock, in the same order.
//!
//! The rate of two readings is never exact. If each drain used its own, a hit could get a later
//! time than a hit that followed it. So a time between two readings depends on these two alone.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::sys::{monotonic_ns, ticks};

/// Number of readings that are kept. A thread that loses its processor within a collector may
/// deliver its hit many drains later.
const MAX_READINGS: usize = 64;

/// One moment on three clocks: the processor's, the kernel's monotonic one, and the standard
/// library's.
#[derive(Clone, Copy)]
struct Reading {
    ticks: u64,
    ns: u64,
    instant: Instant,
}

impl Reading {
    /// Reads the clocks as close together as the kernel allows.
    fn now() -> Reading {
        let mut best: Option<(u64, Reading)> = None;
        for _ in 0..3 {
            let (before, ns, instant, after) = (ticks(), monotonic_ns(), Instant::now(), ticks());
            let took = after.saturating_sub(before);
            if best.as_ref().is_none_or(|(least, _)| took < *least) {
                let ticks = before + took / 2;
                best = Some((took, Reading { ticks, ns, instant }));
            }
        }
        match best {
            Some((_, reading)) => reading,
            None => unreachable!("it was read three times"),
        }
    }
}

/// The readings so far.
pub(super) struct TickConverter {
    first: Reading,
    later: VecDeque<Reading>,
}

impl TickConverter {
    pub(super) fn new() -> TickConverter {
        TickConverter {
            first: Reading::now(),
            later: VecDeque::new(),
        }
    }

    /// Reads the clocks, for all times until now.
    pub(super) fn advance(&mut self) {
        self.add(Reading::now());
    }

    fn add(&mut self, reading: Reading) {
        if self.later.len() == MAX_READINGS {
            self.later.pop_front();
        }
        self.later.push_back(reading);
    }

    /// Nanoseconds of the monotonic clock at this time of the processor's clock.
    #[inline]
    pub(super) fn ns(&self, tick: u64) -> u64 {
        let Some(last) = self.later.len().checked_sub(1) else {
            return self.first.ns;
        };
        // Most times lie between the last two readings.
        let earlier = |reading: &Reading| reading.ticks < tick;
        let next = self.later.iter().rposition(earlier).map_or(0, |at| at + 1);
        let next = next.min(last);
        let after = &self.later[next];
        let before = next
            .checked_sub(1)
            .map_or(&self.first, |at| &self.later[at]);
        let elapsed = u128::from(after.ticks.saturating_sub(before.ticks)).max(1);
        let elapsed_ns = u128::from(after.ns.saturating_sub(before.ns));
        let since = u128::from(tick.saturating_sub(before.ticks));
        before.ns + (since * elapsed_ns / elapsed) as u64
    }

    /// The same moment on the standard library's clock.
    #[inline]
    pub(super) fn instant(&self, ns: u64) -> Instant {
        self.first.instant + Duration::from_nanos(ns.saturating_sub(self.first.ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_readings_change_no_earlier_time() {
        let mut converter = TickConverter::new();
        let Reading { ticks, ns, instant } = converter.first;
        let mut times = Vec::new();
        // The second reading was disturbed between the two clocks.
        for (passed, passed_ns) in [(1000, 500), (2000, 1400), (3000, 1500)] {
            converter.add(Reading {
                ticks: ticks + passed,
                ns: ns + passed_ns,
                instant,
            });
            let now = |passed: u64| converter.ns(ticks + passed) - ns;
            times.extend((times.len() as u64..=passed).map(now));
            assert!((0..).zip(&times).all(|(passed, time)| now(passed) == *time));
        }
        assert!(times.is_sorted());
        assert_eq!([500, 1500, 2999].map(|at| times[at]), [250, 950, 1499]);
    }
}
