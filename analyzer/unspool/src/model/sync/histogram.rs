//! Statistics of durations: count, sum, maximum, and a histogram in powers of two.

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The number of durations.
    pub count: u64,
    /// The sum of all durations, nanoseconds.
    pub total_ns: u64,
    /// The longest duration, nanoseconds.
    pub max_ns: u64,
    /// Counts of durations in `2^i..2^(i+1)` nanoseconds, at index `i`. A duration of 0 counts as
    /// 1. The last bucket holds the longest duration.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Adds one duration, nanoseconds.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        let power = ns.max(1).ilog2() as usize;
        if self.buckets.len() <= power {
            self.buckets.resize(power + 1, 0);
        }
        self.buckets[power] += 1;
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += others;
        }
    }

    /// The approximate median: the lower end of its power of two; 0 if empty.
    pub(super) fn median_ns(&self) -> u64 {
        let mut below = 0;
        let at = self.buckets.iter().position(|count| {
            below += count;
            below * 2 >= self.count
        });
        at.filter(|_| self.count > 0)
            .map_or(0, |power| 1 << power.min(63))
    }

    /// The mean duration; 0 if empty.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_by_powers_of_two() {
        let mut lengths = Histogram::default();
        for ns in [0, 1, 2, 3, 4, 1000] {
            lengths.add(ns);
        }
        assert_eq!(
            (lengths.count, lengths.total_ns, lengths.max_ns),
            (6, 1010, 1000)
        );
        assert_eq!(lengths.buckets, [2, 2, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((lengths.mean_ns(), lengths.median_ns()), (168, 2));
        assert_eq!(Histogram::default().median_ns(), 0);
        let mut twice = Histogram::default();
        twice.merge(&lengths);
        twice.merge(&lengths);
        assert_eq!((twice.count, twice.buckets[0]), (12, 4));
        twice.add(u64::MAX);
        assert_eq!((twice.total_ns, twice.buckets.len()), (u64::MAX, 64));
    }
}
