//! Where the paths of a function join, and what is known there.

use crate::code::listing::Listing;
use crate::code::state::State;

const NOWHERE: u32 = u32::MAX;

/// The states in which paths join, by number; and which of them are to be looked at again. Memory that one function after
/// the other uses.
#[derive(Debug, Default)]
pub(super) struct Joins {
    /// Large: they stay where they are.
    states: Vec<State>,
    /// By number: where the state is, [`NOWHERE`] if no path leads there.
    places: Vec<u32>,
    /// How many states are in use.
    used: u32,
    /// One bit for each that waits. They are numbered by address.
    waiting: Vec<u64>,
}

impl Joins {
    /// Begin anew, with so many places where paths join.
    pub(super) fn begin(&mut self, count: usize) {
        self.used = 0;
        self.clear(count);
    }

    /// So many numbers, of which no state is known.
    fn clear(&mut self, count: usize) {
        self.places.clear();
        self.places.resize(count, NOWHERE);
        self.waiting.clear();
        self.waiting.resize(count.div_ceil(64), 0);
    }

    /// Go on where the round before ended, with more places where paths join. What is cut by one of them is to be looked
    /// at again.
    pub(super) fn go_on(&mut self, listing: &Listing) {
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

    /// Look again at the block with the instruction at a position.
    pub(super) fn look_again(&mut self, listing: &Listing, at: u32) {
        let number = listing.leaders.partition_point(|leader| *leader <= at);
        if let Some(number) = number.checked_sub(1)
            && self.state(number).is_some()
        {
            self.push(number);
        }
    }

    /// The state of this number, if any path leads there.
    pub(super) fn state(&self, number: usize) -> Option<&State> {
        // No state is nowhere.
        self.states.get(*self.places.get(number)? as usize)
    }

    pub(super) fn state_mut(&mut self, number: usize) -> Option<&mut State> {
        self.states.get_mut(*self.places.get(number)? as usize)
    }

    /// A path leads to the place of this number for the first time.
    pub(super) fn set(&mut self, number: usize, state: &State) {
        match self.states.get_mut(self.used as usize) {
            Some(unused) => unused.copy_from(state),
            None => self.states.push(state.clone()),
        }
        self.places[number] = self.used;
        self.used += 1;
        self.push(number);
    }

    /// It is to be looked at again.
    pub(super) fn push(&mut self, number: usize) {
        self.waiting[number / 64] |= 1 << (number % 64);
    }

    /// The next one that waits, from this number on, else the first. Thus what several jumps back lead to is looked at
    /// again once for all of them.
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
