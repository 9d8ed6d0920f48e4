//! Values of several recordings, and which difference between two sides is noise.

/// Number of recordings on each side from which their spread alone decides. With fewer, two sides
/// of equal programs have separate ranges too often: of two and two, once in three times.
const MIN_RUNS_FOR_SPREAD: usize = 5;

/// A smaller relative difference is noise if few recordings were made.
const NOISE_SHARE: f64 = 0.10;
/// [`NOISE_SHARE`] with one recording on each side: these may be the fastest and slowest of many.
const NOISE_SHARE_OF_ONE: f64 = 0.15;
/// A smaller difference is noise if few recordings were made, nanoseconds.
pub const NOISE_NS: u64 = 10_000_000;

/// The values of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// The smallest value.
    pub min: u64,
    /// The median. Of an even number of values, the mean of the middle two.
    pub median: u64,
    /// The largest value.
    pub max: u64,
    /// Number of values.
    pub count: usize,
}

impl Spread {
    /// The spread of some values; zeros if there are none.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Spread {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        let count = values.len();
        let (Some(min), Some(max)) = (values.first(), values.last()) else {
            return Spread::default();
        };
        Spread {
            min: *min,
            median: values[(count - 1) / 2].midpoint(values[count / 2]),
            max: *max,
            count,
        }
    }
}

/// A value before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The value before.
    pub before: Spread,
    /// The value after.
    pub after: Spread,
    /// A smaller difference is noise if few recordings were made, nanoseconds.
    pub noise_ns: u64,
}

impl Change {
    /// A smaller difference is noise if few recordings were made: a part of the value before.
    pub fn noise_share(&self) -> f64 {
        match self.has_spread() {
            true => NOISE_SHARE,
            false => NOISE_SHARE_OF_ONE,
        }
    }

    /// The difference of the medians.
    pub fn delta(&self) -> i64 {
        signed(self.after.median) - signed(self.before.median)
    }

    /// The difference as a part of the value before; none if that is zero.
    pub fn share(&self) -> Option<f64> {
        (self.before.median > 0).then(|| self.delta() as f64 / self.before.median as f64)
    }

    /// The larger of both medians.
    pub fn larger_median(&self) -> u64 {
        self.before.median.max(self.after.median)
    }

    /// The distance of the ranges of both sides; 0 if they overlap.
    pub fn gap(&self) -> u64 {
        let growth = self.after.min.saturating_sub(self.before.max);
        growth.max(self.before.min.saturating_sub(self.after.max))
    }

    /// True if the ranges of so few recordings say little.
    pub(super) fn is_few(&self) -> bool {
        self.before.count.min(self.after.count) < MIN_RUNS_FOR_SPREAD
    }

    /// True if equal programs may differ as much. `least` is a difference that is always noise with
    /// few recordings.
    pub(super) fn is_noise_below(&self, least: u64) -> bool {
        let threshold = (self.before.median as f64 * self.noise_share()) as u64;
        let threshold = threshold.max(least).max(self.noise_ns);
        self.gap() == 0 || self.is_few() && self.delta().unsigned_abs() <= threshold
    }

    /// True if it differs by more than noise, and several recordings of a side show the noise.
    pub fn is_marked(&self) -> bool {
        self.has_spread() && !self.is_noise()
    }

    /// True if a side has several recordings, whose values show how much equal runs differ.
    pub fn has_spread(&self) -> bool {
        self.before.count.max(self.after.count) > 1
    }

    /// True if equal programs may differ as much.
    pub fn is_noise(&self) -> bool {
        self.is_noise_below(0)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
