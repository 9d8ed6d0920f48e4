//! Which bytes of the text are known to be something: one bit each, so that asking costs nothing.

use std::ops::Range;

use super::text::Text;

/// A set of addresses in executable ranges.
#[derive(Debug, Default)]
pub(super) struct Cover {
    base: u64,
    bits: Vec<u64>,
}

impl Cover {
    /// None of the addresses from `base` to `end`. No text is larger than 1 GiB: what is beyond is not kept.
    pub(super) fn new(base: u64, end: u64) -> Cover {
        let size = end.saturating_sub(base).min(1 << 30);
        Cover {
            base,
            bits: vec![0; (size / 64 + 1) as usize],
        }
    }

    /// These addresses of `text`.
    pub(super) fn of<'a>(text: &Text<'_>, addresses: impl Iterator<Item = &'a u64>) -> Cover {
        let mut cover = Cover::new(text.start(), text.end());
        for &svma in addresses {
            cover.insert(svma, svma + 1);
        }
        cover
    }

    pub(super) fn insert(&mut self, start: u64, end: u64) {
        for svma in start..end.min(start.saturating_add(1 << 24)) {
            if let Some((word, bit)) = self.place(svma) {
                self.bits[word] |= bit;
            }
        }
    }

    pub(super) fn contains(&self, svma: u64) -> bool {
        self.place(svma)
            .is_some_and(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// The parts of `range` that are not in the set.
    pub(super) fn gaps(&self, range: &Range<u64>) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut start = None;
        for svma in range.clone() {
            match (self.contains(svma), start) {
                (true, Some(from)) => {
                    gaps.push((from, svma));
                    start = None;
                }
                (false, None) => start = Some(svma),
                _ => {}
            }
        }
        gaps.extend(start.map(|from| (from, range.end)));
        gaps
    }

    fn place(&self, svma: u64) -> Option<(usize, u64)> {
        let relative = svma.checked_sub(self.base)?;
        let word = usize::try_from(relative / 64).ok()?;
        (word < self.bits.len()).then_some((word, 1 << (relative % 64)))
    }
}
