//! Converts the server's timestamps to the recording's time.
//!
//! The server reports events in order but with a varying delay, especially while this machine is
//! busy. Timestamps must not contradict the order, so one place keeps the offset between the
//! clocks.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Bound on the drift between two machines' clocks: at most one part in this number.
const DRIFT: u64 = 10_000;

/// Converts the server's timestamps to the recording's time, in the order of the notices.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ServerClock {
    now_ns: u64,
    last_ns: u64,
    /// Our clock minus the server's, estimated from the fastest notice so far.
    ahead_ns: Option<i128>,
    /// The server uses this machine's clock, so `ahead_ns` is exact.
    is_exact: bool,
}

impl ServerClock {
    /// Sets the exact offset to this machine's monotonic clock, which the server uses. `now_ns` is
    /// the recording's present time.
    pub(super) fn share(&mut self, now_ns: u64) {
        if let Ok(server) = clock_gettime(ClockId::CLOCK_MONOTONIC) {
            let server_ns = Duration::from(server).as_nanos().cast_signed();
            self.ahead_ns = Some(i128::from(now_ns) - server_ns);
            self.is_exact = true;
        }
    }

    /// Handles a batch of notices: the server's send time of each, and the time since its arrival.
    pub(super) fn begin(&mut self, now_ns: u64, batch: impl Iterator<Item = (u64, Duration)>) {
        if self.is_exact {
            self.now_ns = now_ns;
            return;
        }
        let drift = now_ns.saturating_sub(self.now_ns) / DRIFT;
        let known = self.ahead_ns.map(|ahead| ahead + i128::from(drift));
        let here = batch.map(|(sent, since)| {
            i128::from(now_ns) - since.as_nanos().cast_signed() - i128::from(sent)
        });
        self.ahead_ns = here.chain(known).min();
        self.now_ns = now_ns;
    }

    /// The time in the recording at which the server sent a notice.
    pub(super) fn sent(&self, server_ns: Option<u64>, since: Duration) -> u64 {
        let here = match (server_ns, self.ahead_ns) {
            (Some(server_ns), Some(ahead)) => i128::from(server_ns) + ahead,
            _ => i128::from(self.now_ns) - since.as_nanos().cast_signed(),
        };
        u64::try_from(here).unwrap_or(0).min(self.now_ns)
    }

    /// The time of the next event, which happened `age` before the server sent it. Never decreases.
    pub(super) fn time(&mut self, sent_ns: u64, age: Duration) -> u64 {
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.last_ns = self.last_ns.max(sent_ns.saturating_sub(age));
        self.last_ns
    }

    /// The time of the latest event.
    pub(super) fn last(&self) -> u64 {
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three notices, sent 10 ms apart; the second arrives 70 ms late.
    #[test]
    fn a_late_notice_keeps_its_time() {
        const MS: u64 = 1_000_000;
        const SERVER: u64 = 500_000 * MS;
        let mut clock = ServerClock::default();
        let times = [(10, 11), (20, 91), (30, 92)].map(|(happened, received)| {
            let sent = SERVER + happened * MS;
            clock.begin(received * MS, [(sent, Duration::ZERO)].into_iter());
            let sent = clock.sent(Some(sent), Duration::ZERO);
            clock.time(sent, Duration::from_millis(1)) / MS
        });
        assert_eq!(times, [10, 20, 30]);
    }
}
