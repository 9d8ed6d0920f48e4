//! The fix point: the states of joining paths meet until nothing changes.

use super::block::{self, BlockVisitor, Scratch};
use super::joins::Joins;
use super::{Jumps, Memory, is_slot};
use crate::code::effect::{Flow, Instruction, Target};
use crate::code::jump_table::{self, Targets};
use crate::code::listing::Listing;
use crate::code::state::{Context, NO_CALL, State, Value};

/// The fix point.
struct Fix<'f> {
    jumps: &'f Jumps,
    joins: &'f mut Joins,
    found: Found,
    /// Position of the block that is carried out.
    at: u32,
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
    /// Those of the round before.
    pub(super) resolved: Vec<u32>,
    /// How deep the stack is at the shallowest call whose exceptions are caught. Those arguments of calls that are on
    /// the stack are gone where they are.
    pub(super) floor: i32,
    /// Jumps that are not resolved.
    pub(super) unresolved: Vec<u32>,
    /// Those of the round before.
    pub(super) were_unresolved: Vec<u32>,
    /// One with a frame is not.
    pub(super) open: bool,
    pub(super) doubtful: bool,
    /// The stack pointer was moved by an unknown amount: an inner loop must come to its end before the outer one does
    /// ([`State::meet_again`]).
    anchored: bool,
}

impl Found {
    fn new(floor: i32) -> Found {
        Found {
            calls: Vec::new(),
            tables: Vec::new(),
            resolved: Vec::new(),
            floor,
            unresolved: Vec::new(),
            were_unresolved: Vec::new(),
            open: false,
            doubtful: false,
            anchored: false,
        }
    }

    /// More paths can be added to what was found.
    pub(super) fn goes_on(&self) -> bool {
        !self.doubtful
    }

    /// Which call is blamed depends on the order in which paths are followed.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.calls.is_empty() || self.doubtful
    }
}

/// Find what is known where paths join. `before`: what was found before jumps were known to lead to more places.
pub(super) fn find(
    memory: &mut Memory,
    context: &mut Context<'_>,
    jumps: &Jumps,
    entry: &State,
    mut before: Option<Found>,
) -> Found {
    let Memory {
        listing,
        joins,
        scratch,
        ..
    } = memory;
    let mut floor = i32::MAX;
    loop {
        let continued = before.is_some();
        let found = match before.take() {
            Some(mut found) => {
                joins.go_on(listing);
                found.open = false;
                found.were_unresolved.clear();
                std::mem::swap(&mut found.unresolved, &mut found.were_unresolved);
                let jumps = found.were_unresolved.iter().copied();
                let jumps = jumps.chain(found.resolved.drain(..));
                jumps.for_each(|at| joins.look_again(listing, at));
                found
            }
            None => {
                joins.begin(listing.leaders.len());
                let Some(first) = listing.state(0) else {
                    return Found {
                        doubtful: true,
                        ..Found::new(floor)
                    };
                };
                joins.set(first, entry);
                Found::new(floor)
            }
        };
        let mut fix = Fix {
            jumps,
            joins,
            found,
            at: 0,
            shallow: false,
        };
        fix.run(listing, context, scratch);
        let again = fix.shallow && (continued || floor == i32::MAX);
        floor = fix.found.floor;
        if !again {
            return fix.found;
        }
    }
}

impl Fix<'_> {
    fn run(&mut self, listing: &Listing, context: &mut Context<'_>, scratch: &mut Scratch) {
        let mut steps = 200 * listing.len() + 1000;
        let jumps = self.jumps;
        let mut from = 0;
        while let Some(number) = self.joins.pop(from) {
            self.at = listing.leaders[number];
            let Some(state) = self.joins.state(number) else {
                continue;
            };
            scratch.state.copy_from(state);
            let done = block::follow(listing, context, jumps, number, scratch, self);
            from = if self.found.anchored { 0 } else { number + 1 };
            steps = steps.saturating_sub(done);
            if steps == 0 {
                self.found.doubtful = true;
                return;
            }
        }
    }
}

impl BlockVisitor for Fix<'_> {
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
        self.found.anchored |= state.is_anchored();
        let Some(old) = self.joins.state_mut(number) else {
            self.joins.set(number, state);
            return;
        };
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

    fn exception(&mut self, listing: &Listing, pad: Target, state: &State) {
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

    fn noreturn_call(&mut self, _: &Listing, _: u32, _: &State) {}

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
            if !self.found.unresolved.contains(&at) {
                self.found.unresolved.push(at);
            }
            self.found.open |= state.has_frame();
        }
    }
}
