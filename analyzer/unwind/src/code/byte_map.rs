//! A set of addresses with one bit per byte of text, so that lookups are cheap.

use std::ops::Range;

use super::text::Text;

/// A set of addresses in executable ranges.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteMap {
    base: u64,
    bits: Vec<u64>,
}

impl ByteMap {
    /// An empty set for the addresses from `base` to `end`. It ignores addresses beyond 1 GiB,
    /// because no text is larger.
    pub(super) fn new(base: u64, end: u64) -> ByteMap {
        let size = end.saturating_sub(base).min(1 << 30);
        ByteMap {
            base,
            bits: vec![0; (size / 64 + 1) as usize],
        }
    }

    /// An empty set for the addresses of `text`.
    pub(super) fn over(text: &Text<'_>) -> ByteMap {
        ByteMap::new(text.start(), text.end())
    }

    /// The set of these addresses of `text`.
    pub(super) fn of<'a>(text: &Text<'_>, addresses: impl Iterator<Item = &'a u64>) -> ByteMap {
        let mut cover = ByteMap::over(text);
        for &svma in addresses {
            cover.add(svma);
        }
        cover
    }

    /// Adds one address. Returns whether it is new. An address outside the set's range never is.
    pub(super) fn add(&mut self, svma: u64) -> bool {
        let Some((word, bit)) = self.place(svma) else {
            return false;
        };
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        new
    }

    /// Adds the addresses from `start` to `end`.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        let last = self.base + 64 * self.bits.len() as u64;
        let (mut at, end) = (start.max(self.base), end.min(last));
        while at < end {
            let next = (at + 64 - (at - self.base) % 64).min(end);
            if let Some((word, _)) = self.place(at) {
                self.bits[word] |= run(at - self.base, next - self.base);
            }
            at = next;
        }
    }

    /// Whether the set has no range.
    pub(super) fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// Adds the addresses of `other`, which has the same range.
    pub(super) fn merge(&mut self, other: &ByteMap) {
        for (mine, theirs) in self.bits.iter_mut().zip(&other.bits) {
            *mine |= theirs;
        }
    }

    pub(super) fn insert_all(&mut self, spans: &[(u64, u64)]) {
        for &(start, end) in spans {
            self.insert(start, end);
        }
    }

    #[inline]
    pub(super) fn contains(&self, svma: u64) -> bool {
        self.place(svma)
            .is_some_and(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// The first address at or after `from` that is in the set (`inside`) or is not (`!inside`).
    /// `end` if there is none before it.
    pub(super) fn next(&self, from: u64, end: u64, inside: bool) -> u64 {
        let mut at = from;
        while at < end {
            let Some((word, _)) = self.place(at) else {
                // No address outside the range is in the set.
                let before = if at < self.base { self.base } else { end };
                at = if inside { before.min(end) } else { return at };
                continue;
            };
            let skipped = (at - self.base) % 64;
            let bits = if inside {
                self.bits[word]
            } else {
                !self.bits[word]
            } >> skipped;
            if bits != 0 {
                return (at + u64::from(bits.trailing_zeros())).min(end);
            }
            at += 64 - skipped;
        }
        end
    }

    /// All addresses, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        self.within(self.base..self.base + 64 * self.bits.len() as u64)
    }

    /// The addresses in `range`, in order.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let Range { start: mut at, end } = range;
        std::iter::from_fn(move || {
            let next = self.next(at, end, true);
            at = next + 1;
            (next < end).then_some(next)
        })
    }

    /// The parts of `range` that are not in the set.
    pub(super) fn gaps(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let end = range.end;
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = self.next(at, end, false);
            at = self.next(start, end, true);
            (start < end).then_some((start, at))
        })
    }

    #[inline]
    fn place(&self, svma: u64) -> Option<(usize, u64)> {
        let relative = svma.checked_sub(self.base)?;
        let word = usize::try_from(relative / 64).ok()?;
        (word < self.bits.len()).then_some((word, 1 << (relative % 64)))
    }
}

/// The bits from `from` to `to` of one word.
fn run(from: u64, to: u64) -> u64 {
    let (first, count) = (from % 64, to - from);
    (u64::MAX >> (64 - count)) << first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_across_words() {
        for (base, start, end) in [
            (0, 3, 3),
            (0, 0, 64),
            (7, 10, 200),
            (100, 90, 170),
            (0, 63, 65),
        ] {
            let mut cover = ByteMap::new(base, 300);
            cover.insert(start, end);
            let known = |svma: u64| svma >= base && (start..end).contains(&svma);
            for svma in 0..300 {
                assert_eq!(
                    cover.contains(svma),
                    known(svma),
                    "{base} {start} {end}: {svma}"
                );
            }
            let mut gaps = Vec::new();
            for svma in base..300 {
                match gaps.last_mut() {
                    _ if known(svma) => {}
                    Some((_, last)) if *last == svma => *last += 1,
                    _ => gaps.push((svma, svma + 1)),
                }
            }
            assert_eq!(cover.gaps(&(base..300)).collect::<Vec<_>>(), gaps);
        }
    }

    #[test]
    fn addresses_outside_are_ignored() {
        let mut cover = ByteMap::new(0x1000, 0x1040);
        assert!(!cover.add(0xfff) && !cover.add(0x10_0000));
        assert!(cover.add(0x1000) && !cover.add(0x1000));
        cover.insert(0, u64::MAX);
        assert!(cover.contains(0x1001) && !cover.contains(0xfff));
    }
}
