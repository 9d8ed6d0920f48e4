//! Limits the number of off-CPU samples per second: a program can block a hundred
//! thousand times per second. Pure arithmetic, separate from the rings.

/// Length of the windows of the limit.
const WINDOW_NS: u64 = 50_000_000;

/// A limit for each window, so that the samples are spread over each second.
#[derive(Debug)]
pub(super) struct Limit {
    /// Maximum number of samples in a window.
    per_window: u64,
    /// End of the present window.
    until_ns: u64,
    /// Number of samples in the present window, and those by which earlier windows exceeded the
    /// limit.
    taken: u64,
}

impl Limit {
    pub(super) fn new(per_second: u64, now_ns: u64) -> Limit {
        Limit {
            per_window: (per_second * WINDOW_NS / 1_000_000_000).max(1),
            until_ns: now_ns + WINDOW_NS,
            taken: 0,
        }
    }

    /// Adds samples, and returns true if the kernel should take no further ones for now.
    pub(super) fn is_reached(&mut self, now_ns: u64, samples: u64) -> bool {
        self.taken += samples;
        if let Some(late_ns) = now_ns.checked_sub(self.until_ns) {
            let windows = late_ns / WINDOW_NS + 1;
            self.until_ns += windows * WINDOW_NS;
            self.taken = self.taken.saturating_sub(windows * self.per_window);
        }
        self.taken >= self.per_window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_paid_back_in_later_windows() {
        let mut limit = Limit::new(1000, 0);
        assert!(!limit.is_reached(1, 49));
        assert!(limit.is_reached(2, 71));
        assert!(limit.is_reached(WINDOW_NS, 0));
        assert!(!limit.is_reached(2 * WINDOW_NS, 0));
        // Time without samples is no credit.
        assert!(limit.is_reached(90 * WINDOW_NS, 2000));
        assert!(!limit.is_reached(200 * WINDOW_NS, 49));
        assert!(limit.is_reached(200 * WINDOW_NS + 1, 1));
    }
}
