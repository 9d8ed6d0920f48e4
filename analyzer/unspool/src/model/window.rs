//! A part of the recording in columns of equal length: the time axis of timelines and sums.

/// A part of the recording, divided into columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Where it begins, nanoseconds since the recording began.
    pub from_ns: u64,
    /// Where it ends; later than `from_ns`.
    pub to_ns: u64,
    /// Into how many columns it is divided, at least one.
    pub columns: usize,
}

impl Window {
    /// Start of a column; for column `columns`, the window's end.
    pub fn column_ns(&self, column: usize) -> u64 {
        let length = u128::from(self.length_ns());
        let offset = length * column.min(self.columns) as u128 / self.columns.max(1) as u128;
        self.from_ns
            .saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
    }

    /// Length of the window, at least one nanosecond.
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns).max(1)
    }

    /// The columns that a time span touches, if it is in the window.
    pub(super) fn columns_of(
        &self,
        from_ns: u64,
        to_ns: u64,
    ) -> Option<std::ops::RangeInclusive<usize>> {
        if to_ns < self.from_ns || from_ns >= self.to_ns || to_ns < from_ns {
            return None;
        }
        let column = |ns: u64| {
            let offset = ns.saturating_sub(self.from_ns).min(self.length_ns() - 1);
            let column =
                u128::from(offset) * self.columns.max(1) as u128 / u128::from(self.length_ns());
            usize::try_from(column).unwrap_or(usize::MAX)
        };
        let last = if to_ns > from_ns { to_ns - 1 } else { to_ns };
        Some(column(from_ns)..=column(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_divide_the_window() {
        let window = Window {
            from_ns: 100,
            to_ns: 200,
            columns: 10,
        };
        assert_eq!(window.column_ns(0), 100);
        assert_eq!(window.column_ns(5), 150);
        assert_eq!(window.column_ns(10), 200);
        assert_eq!(window.columns_of(100, 110), Some(0..=0));
        assert_eq!(window.columns_of(109, 111), Some(0..=1));
        assert_eq!(window.columns_of(0, 1000), Some(0..=9));
        assert_eq!(window.columns_of(150, 150), Some(5..=5));
        assert_eq!(window.columns_of(0, 99), None);
        assert_eq!(window.columns_of(200, 300), None);
        // A clock that went back.
        assert_eq!(window.columns_of(150, 140), None);
    }

    #[test]
    fn no_window_is_too_small_or_too_far() {
        for (from_ns, to_ns) in [(5, 5), (9, 3), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            let window = Window {
                from_ns,
                to_ns,
                columns: 80,
            };
            for at in [0, 4, 5, 1 << 40, u64::MAX] {
                let columns = window.columns_of(at, u64::MAX);
                assert!(columns.is_none_or(|columns| *columns.end() < 80));
            }
            assert!(window.column_ns(80) >= window.column_ns(0));
        }
    }
}
