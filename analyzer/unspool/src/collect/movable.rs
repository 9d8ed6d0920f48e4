//! Finds instructions that can be moved, so that a server can replace them with a jump and record
//! hits without a stop.
//!
//! This depends only on the code, not on the data recorded there. A server that cannot place a jump
//! uses a trap.

use std::collections::BTreeSet;
use std::ops::Range;

use super::modules::Mapped;
use super::place::Place;
use crate::store::{Passages, Store};

/// The addresses in one module at which instructions can be moved.
#[derive(Debug, Default)]
pub(super) struct Movable(BTreeSet<u64>);

impl Movable {
    /// Selects the candidates into which no other code jumps. Each candidate has an address and the
    /// number of bytes that can be moved as far as its own function is concerned.
    pub(super) fn of(passages: &mut Passages<'_>, candidates: &[(u64, u8)]) -> Movable {
        let candidates = candidates.iter().filter(|(_, length)| *length > 0);
        let mut ranges: Vec<Range<u64>> = candidates
            .map(|(svma, length)| *svma..svma + u64::from(*length))
            .collect();
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        ranges.dedup();
        let entered = passages.entered(&ranges);
        let starts = ranges.into_iter().map(|range| range.start);
        Movable(starts.filter(|start| !entered.contains(start)).collect())
    }

    /// `length` if the instructions at `svma` can be moved, else 0.
    pub(super) fn at(&self, svma: u64, length: u8) -> u8 {
        if self.0.contains(&svma) { length } else { 0 }
    }
}

/// Sets the number of movable bytes at the beginnings of functions of one module.
pub(super) fn set_movable(store: &Store, mapped: &Mapped, places: &mut [&mut Place]) {
    let image = mapped.image.as_ref().filter(|_| !places.is_empty());
    let Some(mut passages) = image.and_then(|image| store.passages(image)) else {
        return;
    };
    let mut candidates = Vec::new();
    for place in &mut *places {
        let svma = place.address.wrapping_sub(mapped.bias);
        place.movable = passages.follow(svma, place.thumb).movable;
        candidates.push((svma, place.movable));
    }
    let free = Movable::of(&mut passages, &candidates);
    passages.keep();
    for (place, (svma, length)) in places.iter_mut().zip(candidates) {
        place.movable = free.at(svma, length);
    }
}
