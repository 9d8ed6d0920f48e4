//! The states at the places where a function's paths join.

use crate::code::listing::Listing;
use crate::code::state::State;

const NOWHERE: u32 = u32::MAX;

/// The states of joining paths by number, and the set of blocks to process. The memory is reused
/// from function to function.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// The states. They are large and are never moved.
    states: Vec<State>,
    /// By number: index in `states`, or [`NOWHERE`] if no path leads there.
    places: Vec<u32>,
    /// Number of states in use.
    used: u32,
    /// One bit for each block to process. Blocks are numbered by address.
    waiting: Vec<u64>,
}

impl Joins {
    /// Starts a new function with `count` joins.
    pub(super) fn begin(&mut self, count: usize) {
        self.used = 0;
        self.clear(count);
    }

    /// Resizes to `count` joins without states.
    fn clear(&mut self, count: usize) {
        self.places.clear();
        self.places.resize(count, NOWHERE);
        self.waiting.clear();
        self.waiting.resize(count.div_ceil(64), 0);
    }

    /// Continues after a round, with more joins. Blocks that a new join splits are processed again.
    pub(super) fn resume(&mut self, listing: &Listing) {
        let Listing {
            leaders, before, ..
        } = listing;
        let places = std::mem::take(&mut self.places);
        self.clear(leaders.len());
        let mut old = before.iter().zip(places).peekable();
        let mut last = None;
        for (number, leader) in leaders.iter().enumerate() {
            match old.next_if(|(known, _)| *known == leader) {
                Some((_, NOWHERE)) => {}
                Some((_, place)) => {
                    self.places[number] = place;
                    last = Some(number);
                }
                None => {
                    if let Some(cut) = last.take() {
                        self.push(cut);
                    }
                }
            }
        }
    }

    /// Marks the block that contains position `at` for processing.
    pub(super) fn mark_at(&mut self, listing: &Listing, at: u32) {
        let number = listing.leaders.partition_point(|leader| *leader <= at);
        if let Some(number) = number.checked_sub(1)
            && self.state(number).is_some()
        {
            self.push(number);
        }
    }

    /// The state of this number, if a path leads there.
    pub(super) fn state(&self, number: usize) -> Option<&State> {
        // `NOWHERE` is not a valid index.
        self.states.get(*self.places.get(number)? as usize)
    }

    pub(super) fn state_mut(&mut self, number: usize) -> Option<&mut State> {
        self.states.get_mut(*self.places.get(number)? as usize)
    }

    /// Sets the state of the first path to this join.
    pub(super) fn set(&mut self, number: usize, state: &State) {
        match self.states.get_mut(self.used as usize) {
            Some(unused) => unused.copy_from(state),
            None => self.states.push(state.clone()),
        }
        self.places[number] = self.used;
        self.used += 1;
        self.push(number);
    }

    /// Marks the block for processing.
    pub(super) fn push(&mut self, number: usize) {
        self.waiting[number / 64] |= 1 << (number % 64);
    }

    /// Takes the next block to process, from number `from` on, else the first. Backward jumps to
    /// one block then cause only one more pass over it.
    pub(super) fn pop(&mut self, from: usize) -> Option<usize> {
        let next = self.next(from).or_else(|| self.next(0))?;
        self.waiting[next / 64] &= !(1 << (next % 64));
        Some(next)
    }

    fn next(&self, from: usize) -> Option<usize> {
        let first = from / 64;
        let mut mask = u64::MAX << (from % 64);
        for (index, word) in self.waiting.iter().enumerate().skip(first) {
            let word = word & mask;
            if word != 0 {
                return Some(64 * index + word.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
}
