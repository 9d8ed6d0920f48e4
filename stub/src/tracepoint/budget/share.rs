//! How much tracing may cost, and what that makes of a bucket.

use super::SECOND;

/// A part of one processor, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Share(u32);

/// What tracing may cost. The smaller is the stricter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Limit {
    /// This share.
    Share(Share),
    /// As much as it does.
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
    /// The budget if the command line names none.
    pub(crate) const USUAL: Share = Share(50_000);

    /// Reads `5%` or `0.5%`: more than nothing, and at most one processor.
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

    /// As [`basis_points`](Self::basis_points) has it: more than nothing, and at most one
    /// processor.
    pub(crate) fn from_basis_points(points: u32) -> Option<Share> {
        (1..=10_000).contains(&points).then(|| Share(points * 100))
    }

    /// In hundredths of a percent.
    pub(crate) fn basis_points(self) -> u32 {
        self.0 / 100
    }

    fn per_second(self) -> i64 {
        i64::from(self.0) * 1000
    }

    pub(super) fn capacity(self) -> i64 {
        self.per_second() / 5
    }

    /// What a single hit counts at most when the dearest probe is looked for: in a dearer one the
    /// stub had to wait.
    pub(super) fn one_hit(self) -> u64 {
        self.capacity() as u64 / 8
    }

    /// What flows in, in so many nanoseconds.
    pub(super) fn refill(self, elapsed: u64) -> i64 {
        let elapsed = elapsed.min(10 * SECOND) as i64;
        elapsed / 1000 * i64::from(self.0) / 1000 * 4 / 5
    }

    /// How long until that much has flowed in.
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
