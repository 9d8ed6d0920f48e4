//! The fix point: the states of joining paths meet until nothing changes.

use super::block::{self, Follow, Scratch};
use super::{Jumps, Memory, is_slot};
use crate::code::effect::{Flow, Instruction, Target};
use crate::code::jump_table::{self, Targets};
use crate::code::listing::Listing;
use crate::code::state::{Context, NO_CALL, State, Value};

/// The states in which paths join, by number; and which of them are to be looked at again. Memory that one function after
/// the other uses.
#[derive(Debug, Default)]
pub(super) struct Joins {
    states: Vec<State>,
    known: Vec<bool>,
    /// One bit for each that waits. They are numbered by address.
    waiting: Vec<u64>,
}

impl Joins {
    fn begin(&mut self, count: usize) {
        self.known.clear();
        self.known.resize(count, false);
        self.waiting.clear();
        self.waiting.resize(count.div_ceil(64), 0);
    }

    /// The state of this number, if any path leads there.
    pub(super) fn state(&self, number: usize) -> Option<&State> {
        self.known.get(number).filter(|known| **known)?;
        self.states.get(number)
    }

    fn set(&mut self, number: usize, state: &State) {
        while self.states.len() <= number {
            self.states.push(state.clone());
        }
        self.states[number].copy_from(state);
        self.known[number] = true;
        self.push(number);
    }

    fn push(&mut self, number: usize) {
        self.waiting[number / 64] |= 1 << (number % 64);
    }

    /// The next one that waits, from this number on, else the first. Thus what several jumps back lead to is looked at
    /// again once for all of them.
    fn pop(&mut self, from: usize) -> Option<usize> {
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

/// The fix point.
struct Fix<'f> {
    jumps: &'f Jumps,
    joins: &'f mut Joins,
    found: Found,
    /// Position of the block that is carried out.
    at: u32,
    /// The stack pointer was moved by an unknown amount: an inner loop must come to its end before the outer one does
    /// ([`State::meet_again`]).
    anchored: bool,
    /// That was found after deeper ones.
    shallow: bool,
}

/// What is found on the way to it.
#[derive(Debug)]
pub(super) struct Found {
    /// Calls that seem not to return.
    pub(super) calls: Vec<u32>,
    /// Jumps that were resolved for the first time.
    pub(super) tables: Vec<(u32, Targets)>,
    /// How deep the stack is at the shallowest call whose exceptions are caught. Those arguments of calls that are on
    /// the stack are gone where they are.
    pub(super) floor: i32,
    /// A jump is not resolved.
    pub(super) unresolved: bool,
    /// Nor is one with a frame.
    pub(super) open: bool,
    pub(super) doubtful: bool,
}

/// Find what is known where paths join.
pub(super) fn find(
    memory: &mut Memory,
    context: &mut Context<'_>,
    jumps: &Jumps,
    entry: &State,
) -> Found {
    let Memory {
        listing,
        joins,
        scratch,
        ..
    } = memory;
    let mut floor = i32::MAX;
    loop {
        joins.begin(listing.leaders.len());
        let mut fix = Fix {
            jumps,
            joins,
            found: Found {
                calls: Vec::new(),
                tables: Vec::new(),
                floor,
                unresolved: false,
                open: false,
                doubtful: false,
            },
            at: 0,
            anchored: false,
            shallow: false,
        };
        fix.run(listing, context, entry, scratch);
        let again = fix.shallow && floor == i32::MAX;
        floor = fix.found.floor;
        if !again {
            return fix.found;
        }
    }
}

impl Fix<'_> {
    fn run(
        &mut self,
        listing: &Listing,
        context: &mut Context<'_>,
        entry: &State,
        scratch: &mut Scratch,
    ) {
        let Some(first) = listing.state(0) else {
            self.found.doubtful = true;
            return;
        };
        self.joins.set(first, entry);
        let mut steps = 200 * listing.len() + 1000;
        let jumps = self.jumps;
        let mut from = 0;
        while let Some(number) = self.joins.pop(from) {
            self.at = listing.leaders[number];
            scratch.state.copy_from(&self.joins.states[number]);
            let done = block::follow(listing, context, jumps, number, scratch, self);
            from = if self.anchored { 0 } else { number + 1 };
            steps = steps.saturating_sub(done);
            if steps == 0 {
                self.found.doubtful = true;
                return;
            }
        }
    }
}

impl Follow for Fix<'_> {
    const VISITS: bool = false;

    fn visit(&mut self, _: u32, _: &Instruction, _: &mut State) {}

    fn edge(&mut self, listing: &Listing, to: Option<u32>, state: &State) {
        let Some((at, number)) = to.and_then(|at| Some((at, listing.state(at)?))) else {
            // Ran off the function or into what is not code.
            match state.after {
                NO_CALL => self.found.doubtful = true,
                call => self.found.calls.push(call),
            }
            return;
        };
        self.anchored |= state.is_anchored();
        if !self.joins.known[number] {
            self.joins.set(number, state);
            return;
        }
        let old = &mut self.joins.states[number];
        if old.after != state.after
            && matches!((old.depth(), state.depth()), (Some(a), Some(b)) if a != b)
            && !old.shares_frame(state)
        {
            // The path that came from a call is the one that is not real; if both did, the one
            // whose call is right before the place where they meet.
            let culprit = match (old.after, state.after) {
                (NO_CALL, call) | (call, NO_CALL) => call,
                (a, b) if a < at && b < at => a.max(b),
                (a, b) if a < at || b >= at => a.min(b),
                (_, b) => b,
            };
            self.found.calls.push(culprit);
        }
        let changed = if at <= self.at {
            old.meet_again(state)
        } else {
            old.meet(state)
        };
        if changed {
            self.joins.push(number);
        }
    }

    fn caught(&mut self, listing: &Listing, pad: Target, state: &State) {
        if let Some(depth) = state.depth()
            && depth < self.found.floor
        {
            self.shallow |= self.found.floor != i32::MAX;
            self.found.floor = depth;
        }
        let to = listing.position(pad);
        if to.is_some_and(|to| listing.state(to).is_some()) {
            self.edge(listing, to, &state.landed(self.found.floor));
        }
    }

    fn cease(&mut self, _: &Listing, _: u32, _: &State) {}

    fn leave(&mut self, listing: &Listing, at: u32, state: &State, context: &Context<'_>) {
        let Some(instruction) = listing.at(at) else {
            return;
        };
        let jump = match instruction.flow {
            Flow::Table(_) | Flow::Indirect(_) => true,
            // `bx lr`, where lr is the target of a table
            Flow::Return => {
                instruction.effects().is_empty()
                    && matches!(
                        state.register(context.machine.ra),
                        Value::Target(_) | Value::Loaded(_)
                    )
            }
            _ => false,
        };
        if !jump || self.found.tables.iter().any(|table| table.0 == at) {
            return;
        }
        let targets = jump_table::targets(listing, context, at, state);
        if !targets.is_empty() {
            self.found.tables.push((at, targets));
        } else if !is_slot(instruction) {
            self.found.unresolved = true;
            self.found.open |= state.has_frame();
        }
    }
}
