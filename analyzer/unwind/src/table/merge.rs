//! Merges the rows of several sources: each address gets the row of the first source that covers
//! it.

use std::ops::Range;

use unspool_image::Arch;

use crate::rows::{Builder, Rows};
use crate::rule::{Row, Source};

/// The rows of one source, without the ranges where they do not hold.
pub(super) struct Layer<'a> {
    pub(super) rows: &'a Rows,
    pub(super) cuts: &'a [Range<u64>],
}

impl<'a> Layer<'a> {
    pub(super) fn whole(rows: &'a Rows) -> Layer<'a> {
        Layer { rows, cuts: &[] }
    }
}

/// Merges layers: each address gets the row of the first layer that covers it.
pub(super) fn merge(arch: Arch, layers: &[Layer<'_>]) -> Rows {
    let mut builder = Builder::new(Source::Cfi, arch);
    let mut covered: Vec<Range<u64>> = Vec::new();
    for layer in layers {
        let mut taken = Vec::new();
        let blocked = union(covered.iter().chain(layer.cuts).cloned().collect());
        let mut first = 0;
        for row in layer.rows.iter() {
            while blocked
                .get(first)
                .is_some_and(|range| range.end <= row.start)
            {
                first += 1;
            }
            let mut at = row.start;
            let blocks = blocked[first..].iter();
            let blocks = blocks.take_while(|range| range.start < row.end);
            let end = row.end..row.end;
            for block in blocks.chain(std::iter::once(&end)) {
                if block.start > at {
                    let piece = Row {
                        start: at,
                        end: block.start,
                        ..row
                    };
                    builder.copy(layer.rows, &piece);
                    taken.push(piece.start..piece.end);
                }
                at = at.max(block.end);
            }
        }
        covered.extend(taken);
        covered = union(covered);
    }
    builder.finish()
}

/// Sorts ranges and joins those that touch or overlap.
fn union(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, kept| {
        let touch = next.start <= kept.end;
        if touch {
            kept.end = kept.end.max(next.end);
        }
        touch
    });
    ranges
}
