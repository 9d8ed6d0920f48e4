//! One block carried out: the state at each of its instructions, and where control goes from it.

use crate::code::condition::{self, Either};
use crate::code::effect::{Flow, Instruction, Target};
use crate::code::listing::{ALWAYS, Listing};
use crate::code::machine::Machine;
use crate::code::state::{Context, NO_CALL, State, Value};
use crate::code::switch;

use super::{Jumps, pushes_link};

/// What happens while a block is carried out.
pub(super) trait Follow {
    /// `visit` does something.
    const VISITS: bool;
    /// Before an instruction.
    fn visit(&mut self, at: u32, instruction: &Instruction, state: &mut State);
    /// Control goes from here with this state; `None`: nowhere good.
    fn edge(&mut self, listing: &Listing, to: Option<u32>, state: &State);
    /// An exception that passes a call leads to `pad`.
    fn caught(&mut self, listing: &Listing, pad: Target, state: &State);
    /// A call of what does not return: nothing comes to the instruction behind it, which is `next`.
    fn cease(&mut self, listing: &Listing, next: u32, state: &State);
    /// A return, or a jump that leaves or may leave.
    fn leave(&mut self, listing: &Listing, at: u32, state: &State, context: &Context<'_>);
}

/// States to work in.
pub(super) struct Scratch {
    /// At the instruction that is carried out.
    pub(super) state: State,
    /// Of consecutive instructions under one condition: if it holds, `state` being that if not.
    held: State,
    both: State,
    taken: State,
}

impl Scratch {
    pub(super) fn new(machine: &'static Machine) -> Scratch {
        let state = State::entry(machine);
        Scratch {
            held: state.clone(),
            both: state.clone(),
            taken: state.clone(),
            state,
        }
    }
}

/// Carry the block of this number out, from `scratch.state`. Returns the number of its instructions.
pub(super) fn follow<F: Follow>(
    listing: &Listing,
    context: &mut Context<'_>,
    jumps: &Jumps,
    number: usize,
    scratch: &mut Scratch,
    follow: &mut F,
) -> usize {
    let Scratch {
        state,
        held: other,
        both,
        taken,
    } = scratch;
    // The condition that `other` is for.
    let mut held: Option<u8> = None;
    let leader = listing.leaders[number];
    let mut lines = listing.from(leader);
    let mut at = leader;
    let mut count = 0;
    loop {
        let line = lines.at(at);
        let joins = line.is_some_and(|line| at != leader && line.joins());
        let Some(line) = line.filter(|_| !joins) else {
            if held.is_some() {
                state.meet(other);
            }
            follow.edge(listing, joins.then_some(at), state);
            return count;
        };
        let instruction = &line.instruction;
        count += 1;
        let condition = instruction.condition;
        // An IT instruction does nothing itself: the two paths may go on behind it.
        let governing = match instruction.it {
            0 => condition,
            it => it >> 4,
        };
        if let Some(of) = held
            && governing != of
            && governing != of ^ 1
        {
            state.meet(other);
            held = None;
        }
        if F::VISITS {
            if let Some(of) = held {
                both.copy_from(state);
                both.meet(other);
                both.dirty = true;
                if !matches!(instruction.flow, Flow::Call(_))
                    && let (Some(held), Some(not)) = (other.depth(), state.depth())
                    && held != not
                {
                    both.either = Some(Either {
                        condition: of,
                        held: -held,
                        not: -not,
                    });
                }
                state.dirty = true;
                follow.visit(at, instruction, both);
            } else {
                follow.visit(at, instruction, state);
            }
        }
        let next = at + u32::from(instruction.len);
        let conditional = condition != ALWAYS;
        if conditional && held.is_none() {
            other.copy_from(state);
            // `cmp r0, #0` after a clone system call, then `eq` or `ne`
            match condition {
                0 => {
                    other.zero();
                    state.nonzero();
                }
                1 => {
                    other.nonzero();
                    state.zero();
                }
                _ => {}
            }
            held = Some(condition);
        }
        let active = if held == Some(condition) {
            &mut *other
        } else {
            &mut *state
        };
        let machine = context.machine;
        if active.after != NO_CALL
            && machine.link
            && active.register(machine.ra) == Value::Unknown
            && pushes_link(instruction, machine)
        {
            follow.edge(listing, None, active);
            return count;
        }
        let effects = instruction.effects();
        if !effects.is_empty() {
            let known = active.register(machine.sp) != Value::Unknown;
            for &effect in effects {
                active.apply(effect, context);
            }
            if known
                && active.register(machine.sp) == Value::Unknown
                && let Some(switch) = switch::ahead(listing, machine, next)
            {
                active.switched(switch.ra, switch.depth);
            }
        }
        let mut onward = true;
        match instruction.flow {
            Flow::Next => {}
            Flow::Call(target) => {
                let silent = instruction.last
                    || jumps.is_silent(at)
                    || target.is_some_and(|target| context.text.never_returns(target));
                active.called(context.text.spared(target));
                active.after = at;
                if let Some(svma) = context.text.pad(listing.svma(at)) {
                    let thumb = listing.thumb;
                    follow.caught(listing, Target { svma, thumb }, active);
                }
                if silent && !instruction.last {
                    follow.cease(listing, next, active);
                }
                onward = !silent;
            }
            Flow::Jump(target) => {
                match listing.position(target) {
                    Some(to) => follow.edge(listing, Some(to), active),
                    None => follow.leave(listing, at, active, context),
                }
                onward = false;
            }
            Flow::Branch(target) => match listing.position(target) {
                Some(to) => follow.edge(listing, Some(to), active),
                None => follow.leave(listing, at, active, context),
            },
            Flow::IfZero { target, nonzero } => {
                let mut gone = &*active;
                if active.has_forked() {
                    taken.copy_from(active);
                    if nonzero {
                        taken.nonzero();
                        active.zero();
                    } else {
                        taken.zero();
                        active.nonzero();
                    }
                    gone = taken;
                }
                match listing.position(target) {
                    Some(to) => follow.edge(listing, Some(to), gone),
                    None => follow.leave(listing, at, gone, context),
                }
            }
            Flow::Table(_) | Flow::Indirect(_) => {
                // Without a frame it is a tail call, unless it was resolved.
                let resolved = jumps.is_resolved(at);
                if resolved || active.has_frame() {
                    for &to in jumps.targets(at) {
                        follow.edge(listing, Some(to), active);
                    }
                }
                if !resolved {
                    follow.leave(listing, at, active, context);
                }
                onward = false;
            }
            Flow::Return if jumps.is_resolved(at) => {
                for &to in jumps.targets(at) {
                    follow.edge(listing, Some(to), active);
                }
                onward = false;
            }
            Flow::Return => {
                follow.leave(listing, at, active, context);
                if active.depth().is_some() && active.has_frame() && active.after != NO_CALL {
                    follow.edge(listing, None, active);
                }
                onward = false;
            }
            Flow::Trap => onward = false,
        }
        if onward
            && conditional
            && held.is_some()
            && condition::sets_flags(context.text, listing.svma(at), listing.thumb, instruction)
        {
            state.meet(other);
            held = None;
        }
        if !onward {
            if !conditional {
                return count;
            }
            // Only the path on which the condition holds is gone.
            if held.take().is_some_and(|of| of != condition) {
                std::mem::swap(state, other);
            }
        }
        at = next;
    }
}
