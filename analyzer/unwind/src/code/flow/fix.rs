//! The fixpoint iteration: meets the states of joining paths until nothing changes.

use super::block::{self, BlockVisitor, Scratch};
use super::joins::Joins;
use super::{Jumps, Memory, is_slot};
use crate::code::effect::{Flow, Instruction, Target};
use crate::code::jump_table::{self, Targets};
use crate::code::listing::Listing;
use crate::code::state::{Context, NO_CALL, State, Value};

/// The state of the iteration.
struct Fix<'f> {
    jumps: &'f Jumps,
    joins: &'f mut Joins,
    found: Found,
    /// Position of the current block.
    at: u32,
    /// A shallower `floor` was found after deeper ones.
    shallow: bool,
}

/// Everything found during the iteration.
#[derive(Debug)]
pub(super) struct Found {
    /// Calls that seem not to return.
    pub(super) calls: Vec<u32>,
    /// Newly resolved jumps.
    pub(super) tables: Vec<(u32, Targets)>,
    /// Jumps that the previous round resolved.
    pub(super) resolved: Vec<u32>,
    /// Stack depth at the shallowest call whose exceptions are caught. Stack arguments of calls are
    /// gone at the landing pad.
    pub(super) floor: i32,
    /// Unresolved jumps.
    pub(super) unresolved: Vec<u32>,
    /// Unresolved jumps of the previous round.
    pub(super) were_unresolved: Vec<u32>,
    /// Whether an unresolved jump has a frame.
    pub(super) open: bool,
    pub(super) doubtful: bool,
    /// The stack pointer was moved by an unknown amount. An inner loop must then reach its fixpoint
    /// before the outer one ([`State::meet_loop_end`]).
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

    /// Whether the next round may continue from this result.
    pub(super) fn can_continue(&self) -> bool {
        !self.doubtful
    }

    /// Whether the result depends on the order in which paths were followed.
    pub(super) fn depends_on_order(&self) -> bool {
        !self.calls.is_empty() || self.doubtful
    }
}

/// Computes the states where paths join. `before` is the result of the previous round, in which
/// jumps had fewer known targets.
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
                joins.resume(listing);
                found.open = false;
                found.were_unresolved.clear();
                std::mem::swap(&mut found.unresolved, &mut found.were_unresolved);
                let jumps = found.were_unresolved.iter().copied();
                let jumps = jumps.chain(found.resolved.drain(..));
                jumps.for_each(|at| joins.mark_at(listing, at));
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
            // The path ran off the function or into data.
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
            // The path that came from a call is the one that does not exist. If both did, it is the
            // one whose call is directly before the join.
            let culprit = match (old.after, state.after) {
                (NO_CALL, call) | (call, NO_CALL) => call,
                (a, b) if a < at && b < at => a.max(b),
                (a, b) if a < at || b >= at => a.min(b),
                (_, b) => b,
            };
            self.found.calls.push(culprit);
        }
        let changed = if at <= self.at {
            old.meet_loop_end(state)
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
            self.edge(listing, to, &state.at_landing_pad(self.found.floor));
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
