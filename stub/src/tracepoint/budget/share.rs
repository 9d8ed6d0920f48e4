//! The limit on tracing cost, and the size and refill rate of the bucket for it.

use super::SECOND;

/// A fraction of one processor, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Share(u32);

/// The limit on tracing cost. The smaller of two limits is the stricter one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Limit {
    /// Tracing may use up to this share.
    Share(Share),
    /// No limit.
    None,
}

impl Limit {
    /// The share, if there is a limit.
    pub(crate) fn share(self) -> Option<Share> {
        match self {
            Limit::Share(share) => Some(share),
            Limit::None => None,
        }
    }
}

impl Share {
    /// The share unless the command line sets one: 5 %.
    pub(crate) const USUAL: Share = Share(50_000);

    /// Parses `5%` or `0.5%`. The share must be more than zero, and at most one processor.
    pub(crate) fn parse(text: &str) -> Option<Share> {
        // Floating-point numbers would cost the stub 20 KB.
        let (whole, part) = match text.strip_suffix('%')?.split_once('.') {
            Some((whole, part)) => (whole, format!("{part:0<4}")),
            None => (text.strip_suffix('%')?, "0000".to_owned()),
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if part.len() > 4 || !digits(&part) || !digits(whole) {
            return None;
        }
        let whole: u32 = whole.parse().ok()?;
        let millionths = whole.checked_mul(10_000)? + part.parse::<u32>().ok()?;
        (1..=1_000_000)
            .contains(&millionths)
            .then_some(Share(millionths))
    }

    /// Converts from [`basis_points`](Self::basis_points). The share must be more than zero, and at
    /// most one processor.
    pub(crate) fn from_basis_points(points: u32) -> Option<Share> {
        (1..=10_000).contains(&points).then(|| Share(points * 100))
    }

    /// The share in hundredths of a percent.
    pub(crate) fn basis_points(self) -> u32 {
        self.0 / 100
    }

    fn per_second(self) -> i64 {
        i64::from(self.0) * 1000
    }

    pub(crate) fn capacity(self) -> i64 {
        self.per_second() / 5
    }

    /// The most that a single hit counts in the search for the most expensive probe, in
    /// nanoseconds. In a more expensive hit the stub itself had to wait.
    pub(super) fn one_hit(self) -> u64 {
        self.capacity() as u64 / 8
    }

    /// Nanoseconds of budget that flow into the bucket in `elapsed` nanoseconds.
    pub(super) fn refill(self, elapsed: u64) -> i64 {
        let elapsed = elapsed.min(10 * SECOND) as i64;
        elapsed / 1000 * i64::from(self.0) / 1000 * 4 / 5
    }

    /// Nanoseconds until `amount` nanoseconds of budget have flowed in.
    pub(super) fn time_for(self, amount: i64) -> u64 {
        (amount.max(0) as u64) * 1_000_000 / u64::from(self.0) * 5 / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!(Share::parse("5%"), Some(Share::USUAL));
        assert_eq!(Share::parse("0.5%"), Some(Share(5000)));
        assert_eq!(Share::parse("100%"), Some(Share(1_000_000)));
        for nonsense in [
            "5", "0%", "-1%", "101%", "x%", "nan%", "", "+5%", "1.%x", "9999999%",
        ] {
            assert_eq!(Share::parse(nonsense), None, "{nonsense}");
        }
    }
}
