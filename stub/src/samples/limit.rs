//! Limits the number of off-CPU samples per second: a program can block a hundred
//! thousand times per second. Pure arithmetic, separate from the rings.

/// The limit allows as many samples at once as in this time, so that a program that blocks often
/// for a moment loses none.
const BURST_NS: u64 = 500_000_000;

/// A limit on the number of samples per second.
#[derive(Debug)]
pub(super) struct Limit {
    /// The time that each sample stands for.
    interval_ns: u64,
    /// The time for which samples have been taken already. It can be in the past or in the future.
    until_ns: u64,
}

impl Limit {
    pub(super) fn new(per_second: u64, now_ns: u64) -> Limit {
        Limit {
            interval_ns: (1_000_000_000 / per_second.max(1)).max(1),
            until_ns: now_ns.saturating_sub(BURST_NS),
        }
    }

    /// Adds samples, and returns true if the kernel should take no further ones for now.
    pub(super) fn is_reached(&mut self, now_ns: u64, samples: u64) -> bool {
        let since_ns = self.until_ns.max(now_ns.saturating_sub(BURST_NS));
        self.until_ns = since_ns.saturating_add(samples.saturating_mul(self.interval_ns));
        self.until_ns >= now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_paid_back_later() {
        const MS: u64 = 1_000_000;
        let mut limit = Limit::new(1000, 1000 * MS);
        assert!(!limit.is_reached(1000 * MS, 499));
        assert!(limit.is_reached(1000 * MS, 21));
        assert!(limit.is_reached(1020 * MS, 0));
        assert!(!limit.is_reached(1021 * MS, 0));
        // The credit of a long time without samples is limited.
        assert!(!limit.is_reached(9000 * MS, 499));
        assert!(limit.is_reached(9000 * MS, 1));
    }
}
