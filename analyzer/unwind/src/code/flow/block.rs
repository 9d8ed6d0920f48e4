//! Executes one block symbolically: the state at each instruction, and where control goes.

use crate::code::condition::{self, Either};
use crate::code::effect::{Flow, Instruction, Target};
use crate::code::listing::{ALWAYS, Listing};
use crate::code::machine::Machine;
use crate::code::stack_switch;
use crate::code::state::{Context, NO_CALL, State, Value};

use super::{Jumps, pushes_link};

/// Receives the events of a block's execution.
pub(super) trait BlockVisitor {
    /// Whether [`BlockVisitor::visit`] does anything.
    const VISITS: bool;
    /// Called before each instruction.
    fn visit(&mut self, at: u32, instruction: &Instruction, state: &mut State);
    /// Control goes to `to` with this state; `None` if it runs into something that is not code.
    fn edge(&mut self, listing: &Listing, to: Option<u32>, state: &State);
    /// An exception that passes a call continues at `pad`.
    fn exception(&mut self, listing: &Listing, pad: Target, state: &State);
    /// A call does not return, so control does not reach `next`, the instruction after it.
    fn noreturn_call(&mut self, listing: &Listing, next: u32, state: &State);
    /// A return, or a jump that leaves the function or may leave it.
    fn leave(&mut self, listing: &Listing, at: u32, state: &State, context: &Context<'_>);
}

/// Working states, allocated once and reused for every block.
pub(super) struct Scratch {
    /// The state at the current instruction. Inside a run of conditional instructions: the state
    /// on the path where the condition fails.
    pub(super) state: State,
    /// The state on the path where the condition holds.
    when_true: State,
    /// The meet of both states, for the visitor.
    joined: State,
    /// The state on the taken path of `cbz` and `cbnz`.
    branch: State,
}

impl Scratch {
    pub(super) fn new(machine: &'static Machine) -> Scratch {
        let state = State::entry(machine);
        Scratch {
            when_true: state.clone(),
            joined: state.clone(),
            branch: state.clone(),
            state,
        }
    }
}

/// Executes block `number` from `scratch.state`. Returns the number of its instructions.
pub(super) fn follow<V: BlockVisitor>(
    listing: &Listing,
    context: &mut Context<'_>,
    jumps: &Jumps,
    number: usize,
    scratch: &mut Scratch,
    visitor: &mut V,
) -> usize {
    let mut walk = BlockWalk {
        listing,
        jumps,
        scratch,
        visitor,
        condition: None,
    };
    let leader = listing.leaders[number];
    let mut lines = listing.from(leader);
    let mut at = leader;
    let mut count = 0;
    loop {
        let line = lines.at(at);
        let joins = line.is_some_and(|line| at != leader && line.joins());
        let Some(line) = line.filter(|_| !joins) else {
            walk.join_paths();
            walk.visitor
                .edge(listing, joins.then_some(at), &walk.scratch.state);
            return count;
        };
        count += 1;
        if !walk.step(context, at, &line.instruction) {
            return count;
        }
        at += u32::from(line.instruction.len);
    }
}

/// One pass over a block.
struct BlockWalk<'w, V> {
    listing: &'w Listing,
    jumps: &'w Jumps,
    scratch: &'w mut Scratch,
    visitor: &'w mut V,
    /// The condition of the current run of conditional instructions. While it is set, two states
    /// are tracked.
    condition: Option<u8>,
}

impl<V: BlockVisitor> BlockWalk<'_, V> {
    /// Executes one instruction. Returns whether control may continue with the next one.
    fn step(&mut self, context: &mut Context<'_>, at: u32, instruction: &Instruction) -> bool {
        self.end_condition_before(instruction);
        if V::VISITS {
            self.visit(at, instruction);
        }
        let conditional = instruction.condition != ALWAYS;
        if conditional && self.condition.is_none() {
            self.begin_condition(instruction.condition);
        }
        if self.begins_next_function(context.machine, instruction) {
            return false;
        }
        self.apply_effects(context, at, instruction);
        if !self.transfer_control(context, at, instruction) {
            if conditional {
                self.drop_path(instruction.condition);
            }
            return conditional;
        }
        if conditional
            && self.condition.is_some()
            && condition::sets_flags(
                context.text,
                self.listing.svma(at),
                self.listing.thumb,
                instruction,
            )
        {
            self.join_paths();
        }
        true
    }

    /// Ends a run of conditional instructions: the states of both paths meet.
    fn join_paths(&mut self) {
        if self.condition.take().is_some() {
            let Scratch {
                state, when_true, ..
            } = &mut *self.scratch;
            state.meet(when_true);
        }
    }

    /// Ends the run of conditional instructions if `instruction` depends on another condition.
    fn end_condition_before(&mut self, instruction: &Instruction) {
        // An IT instruction has no effect itself, so the two paths may continue after it.
        let governing = match instruction.it {
            0 => instruction.condition,
            it => it >> 4,
        };
        if self
            .condition
            .is_some_and(|condition| governing != condition && governing != condition ^ 1)
        {
            self.join_paths();
        }
    }

    /// Begins a run of conditional instructions.
    fn begin_condition(&mut self, condition: u8) {
        let Scratch {
            state, when_true, ..
        } = &mut *self.scratch;
        when_true.copy_from(state);
        // `cmp r0, #0` after a clone system call, then `eq` or `ne`
        match condition {
            0 => {
                when_true.zero();
                state.nonzero();
            }
            1 => {
                when_true.nonzero();
                state.zero();
            }
            _ => {}
        }
        self.condition = Some(condition);
    }

    /// Drops the path on which `condition` holds. The other path remains.
    fn drop_path(&mut self, condition: u8) {
        if self.condition.take().is_some_and(|run| run != condition) {
            let Scratch {
                state, when_true, ..
            } = &mut *self.scratch;
            std::mem::swap(state, when_true);
        }
    }

    /// Shows the visitor the state before an instruction.
    fn visit(&mut self, at: u32, instruction: &Instruction) {
        let Scratch {
            state,
            when_true,
            joined,
            ..
        } = &mut *self.scratch;
        let Some(condition) = self.condition else {
            self.visitor.visit(at, instruction, state);
            return;
        };
        joined.copy_from(state);
        joined.meet(when_true);
        joined.dirty = true;
        if !matches!(instruction.flow, Flow::Call(_))
            && let (Some(held), Some(not)) = (when_true.depth(), state.depth())
            && held != not
        {
            joined.either = Some(Either {
                condition,
                held: -held,
                not: -not,
            });
        }
        state.dirty = true;
        self.visitor.visit(at, instruction, joined);
    }

    /// Whether `instruction` belongs to the next function's prologue: it saves a link register that
    /// a call has overwritten. Then that call does not return.
    fn begins_next_function(&mut self, machine: &Machine, instruction: &Instruction) -> bool {
        let listing = self.listing;
        let (active, visitor) = self.parts(instruction);
        let begins = active.after != NO_CALL
            && machine.link
            && active.register(machine.ra) == Value::Unknown
            && pushes_link(instruction, machine);
        if begins {
            visitor.edge(listing, None, active);
        }
        begins
    }

    /// Applies what an instruction does to registers and the stack.
    fn apply_effects(&mut self, context: &mut Context<'_>, at: u32, instruction: &Instruction) {
        let effects = instruction.effects();
        if effects.is_empty() {
            return;
        }
        let (listing, machine) = (self.listing, context.machine);
        let (active, _) = self.parts(instruction);
        let known = active.register(machine.sp) != Value::Unknown;
        for &effect in effects {
            active.apply(effect, context);
        }
        let next = at + u32::from(instruction.len);
        if known
            && active.register(machine.sp) == Value::Unknown
            && let Some(switch) = stack_switch::find(listing, machine, next)
        {
            active.switched(switch.ra, switch.depth);
        }
    }

    /// Reports where control goes. Returns whether it may continue with the next instruction.
    fn transfer_control(
        &mut self,
        context: &Context<'_>,
        at: u32,
        instruction: &Instruction,
    ) -> bool {
        match instruction.flow {
            Flow::Next => true,
            Flow::Call(target) => self.call(context, at, instruction, target),
            Flow::Jump(target) => {
                self.jump(context, at, instruction, target);
                false
            }
            Flow::Branch(target) => {
                self.jump(context, at, instruction, target);
                true
            }
            Flow::IfZero { target, nonzero } => {
                self.branch_if_zero(context, at, instruction, target, nonzero);
                true
            }
            Flow::Table(_) | Flow::Indirect(_) => {
                self.indirect_jump(context, at, instruction);
                false
            }
            Flow::Return => {
                self.return_or_table(context, at, instruction);
                false
            }
            Flow::Trap => false,
        }
    }

    /// Reports a call. Returns whether it may return.
    fn call(
        &mut self,
        context: &Context<'_>,
        at: u32,
        instruction: &Instruction,
        target: Option<Target>,
    ) -> bool {
        let (listing, text) = (self.listing, context.text);
        let noreturn = instruction.last
            || self.jumps.is_noreturn(at)
            || target.is_some_and(|target| text.never_returns(target));
        let (active, visitor) = self.parts(instruction);
        active.called(text.preserved(target));
        active.after = at;
        if let Some(svma) = text.pad(listing.svma(at)) {
            let thumb = listing.thumb;
            visitor.exception(listing, Target { svma, thumb }, active);
        }
        if noreturn && !instruction.last {
            let next = at + u32::from(instruction.len);
            visitor.noreturn_call(listing, next, active);
        }
        !noreturn
    }

    /// Reports a direct jump, inside the function or out of it.
    fn jump(&mut self, context: &Context<'_>, at: u32, instruction: &Instruction, target: Target) {
        let listing = self.listing;
        let (active, visitor) = self.parts(instruction);
        match listing.position(target) {
            Some(to) => visitor.edge(listing, Some(to), active),
            None => visitor.leave(listing, at, active, context),
        }
    }

    /// Reports a `cbz` or `cbnz`. After a clone system call, it separates parent and child.
    fn branch_if_zero(
        &mut self,
        context: &Context<'_>,
        at: u32,
        instruction: &Instruction,
        target: Target,
        nonzero: bool,
    ) {
        let listing = self.listing;
        let active = if self.condition == Some(instruction.condition) {
            &mut self.scratch.when_true
        } else {
            &mut self.scratch.state
        };
        let mut taken = &*active;
        if active.has_forked() {
            let branch = &mut self.scratch.branch;
            branch.copy_from(active);
            if nonzero {
                branch.nonzero();
                active.zero();
            } else {
                branch.zero();
                active.nonzero();
            }
            taken = branch;
        }
        match listing.position(target) {
            Some(to) => self.visitor.edge(listing, Some(to), taken),
            None => self.visitor.leave(listing, at, taken, context),
        }
    }

    /// Reports a jump through a table or a register. An unresolved jump leaves the function. If the
    /// function has a frame there, the jump may also go to the targets known so far.
    fn indirect_jump(&mut self, context: &Context<'_>, at: u32, instruction: &Instruction) {
        let (listing, jumps) = (self.listing, self.jumps);
        let resolved = jumps.is_resolved(at);
        let (active, visitor) = self.parts(instruction);
        if resolved || active.has_frame() {
            for &to in jumps.targets(at) {
                visitor.edge(listing, Some(to), active);
            }
        }
        if !resolved {
            visitor.leave(listing, at, active, context);
        }
    }

    /// Reports a return, or a jump through a table that is written like a return.
    fn return_or_table(&mut self, context: &Context<'_>, at: u32, instruction: &Instruction) {
        let (listing, jumps) = (self.listing, self.jumps);
        let (active, visitor) = self.parts(instruction);
        if jumps.is_resolved(at) {
            for &to in jumps.targets(at) {
                visitor.edge(listing, Some(to), active);
            }
            return;
        }
        visitor.leave(listing, at, active, context);
        if active.depth().is_some() && active.has_frame() && active.after != NO_CALL {
            visitor.edge(listing, None, active);
        }
    }

    /// The state of the path on which `instruction` executes, and the visitor.
    fn parts(&mut self, instruction: &Instruction) -> (&mut State, &mut V) {
        let active = if self.condition == Some(instruction.condition) {
            &mut self.scratch.when_true
        } else {
            &mut self.scratch.state
        };
        (active, &mut *self.visitor)
    }
}
