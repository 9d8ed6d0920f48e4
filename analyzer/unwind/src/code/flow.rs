//! One function: control flow followed from its entry, the state computed for every instruction.
//!
//! Discovery ([`super::listing`]) finds everything reachable and where paths join. A fix point over the
//! blocks meets the states of joining paths, keeping only what all agree on. A last pass over
//! the blocks reports the state at every instruction.
//!
//! Calls that do not return need no list of names: their fall-through runs into another block, data or the next
//! function. A state remembers the last call on its path ([`State::after`]); where such a path meets one that
//! disagrees on the stack pointer, runs off the function, returns with the stack pointer elsewhere, or
//! pushes a link register that the call has overwritten (the next function's prologue), the call is
//! taken not to return and the function is analysed again without its fall-through.
//!
//! Jumps through tables are resolved from the state at the jump ([`super::jump_table`]). Those that cannot be lead to
//! the code between the function's reached parts that nothing else leads to: to each such orphan with the
//! state that all of these jumps agree on.

mod function;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use unspool_image::Arch;

use super::condition::{self, Either};
use super::effect::{Effect, Flow, Instruction, TableForm, Target};
use super::jump_table::{self, Targets};
use super::listing::{ALWAYS, Listing};
use super::machine::Machine;
use super::state::{Context, NO_CALL, State, Value, bits};
use super::switch;
use super::text::Text;

pub use function::Function;
pub(in crate::code) use function::{Show, Shown};

/// How often one function is looked at again.
const ROUNDS: usize = 80;
/// How many orphans unresolved jumps may lead to.
const ORPHANS: usize = 64;

/// What was found out about a function's jumps and calls in earlier rounds.
#[derive(Debug, Default)]
pub(super) struct Jumps {
    /// Calls that do not return.
    pub(super) silent: HashSet<u32>,
    /// Resolved jumps and where they lead.
    pub(super) tables: Vec<(u32, Targets)>,
    /// Where unresolved jumps are taken to lead.
    pub(super) orphans: Vec<u32>,
}

impl Jumps {
    pub(super) fn targets(&self, at: u32) -> &[u32] {
        match self.tables.iter().find(|table| table.0 == at) {
            Some((_, targets)) => &targets.inside,
            None => &self.orphans,
        }
    }

    pub(super) fn is_resolved(&self, at: u32) -> bool {
        self.tables.iter().any(|table| table.0 == at)
    }
}

/// Follows functions of one text, one after the other.
pub(crate) struct Engine<'t> {
    context: Context<'t>,
    listing: Listing,
}

impl<'t> Engine<'t> {
    /// `listing` is memory to use.
    pub(super) fn new(text: &'t Text<'t>, listing: Listing) -> Engine<'t> {
        Engine {
            context: Context {
                text,
                machine: text.machine,
                tables: Vec::new(),
                bases: Vec::new(),
            },
            listing,
        }
    }

    /// The memory, for another engine.
    pub(super) fn into_listing(self) -> Listing {
        self.listing
    }

    /// Follow the function at `start`; it ends before `end`.
    ///
    /// `whole`: `end` is where the next function starts, so that code in between belongs to this one.
    pub(crate) fn follow(
        &mut self,
        start: Target,
        end: u64,
        entry: &State,
        whole: bool,
        show: &mut dyn Show,
    ) -> Function {
        let machine = self.context.machine;
        self.listing.begin(start, end, machine.shift(start.thumb));
        self.context.tables.clear();
        self.context.bases.clear();
        let mut jumps = Jumps::default();
        for round in 0.. {
            self.listing.discover(&self.context, &jumps);
            let bases = self.context.bases.len();
            let mut fix = Fix::new(self.listing.leaders.len(), &jumps);
            fix.run(&self.listing, &mut self.context, entry);
            let floor = fix.floor;
            if fix.shallow {
                fix = Fix::new(self.listing.leaders.len(), &jumps);
                fix.floor = floor;
                fix.run(&self.listing, &mut self.context, entry);
            }
            let Fix {
                states,
                floor,
                found,
                tables,
                open,
                doubtful,
                ..
            } = fix;
            if round < ROUNDS {
                if self.context.bases.len() > bases && !jumps.tables.is_empty() {
                    // What ends where another starts may have been taken for longer.
                    jumps.tables.clear();
                    continue;
                }
                if !tables.is_empty() {
                    jumps.tables.extend(tables);
                    continue;
                }
                let before = jumps.silent.len();
                jumps.silent.extend(&found);
                if jumps.silent.len() != before {
                    continue;
                }
                if whole
                    && open
                    && jumps.orphans.len() < ORPHANS
                    && let Some(orphan) = self.orphan(&jumps)
                {
                    jumps.orphans.push(orphan);
                    continue;
                }
            }
            let settled = found.iter().all(|call| jumps.silent.contains(call));
            return self.report(states, floor, &jumps, doubtful || !settled, show);
        }
        unreachable!("the loop above returns")
    }

    /// Code between the reached parts that nothing leads to.
    fn orphan(&self, jumps: &Jumps) -> Option<u32> {
        let listing = &self.listing;
        let mut expected = 0u32;
        for (at, instruction) in listing.reached() {
            while expected < at {
                let svma = listing.svma(expected);
                let entries = jumps.tables.iter().map(|table| &table.1.entries);
                if let Some(entries) = entries.into_iter().find(|range| range.contains(&svma)) {
                    expected += ((entries.end - svma) as u32).next_multiple_of(2);
                    continue;
                }
                if listing.is_literal(svma) || self.context.text.is_data(svma) {
                    expected += 2;
                    continue;
                }
                let found = self.context.text.decode(svma, listing.thumb)?;
                if is_filler(&found) {
                    expected += u32::from(found.len);
                    continue;
                }
                return (!pushes_link(&found, self.context.machine)).then_some(expected);
            }
            expected = expected.max(at + u32::from(instruction.len));
        }
        None
    }

    fn report(
        &mut self,
        mut states: Vec<Option<State>>,
        floor: i32,
        jumps: &Jumps,
        doubtful: bool,
        show: &mut dyn Show,
    ) -> Function {
        let listing = &self.listing;
        let mut report = Report {
            text: self.context.text,
            listing,
            jumps,
            show,
            floor,
            fresh: true,
            returns: false,
            unclean: false,
            function: Function {
                start: listing.start,
                end: listing.end,
                thumb: listing.thumb,
                doubtful,
                literals: listing.literals.clone(),
                tables: jumps
                    .tables
                    .iter()
                    .map(|(_, targets)| (targets.entries.start, targets.entries.end))
                    .collect(),
                ..Function::default()
            },
        };
        for (&leader, state) in listing.leaders.iter().zip(&mut states) {
            if let Some(mut state) = state.take() {
                state.dirty = true;
                report.fresh = true;
                block(
                    listing,
                    &mut self.context,
                    jumps,
                    leader,
                    state,
                    &mut report,
                );
            }
        }
        let mut function = report.function;
        function.endless = !report.returns;
        function.clean = report.returns && !report.unclean;
        function.spans.sort_unstable();
        function
    }
}

/// What happens while a block is carried out.
trait Follow {
    /// Before an instruction.
    fn visit(&mut self, at: u32, instruction: &Instruction, state: &mut State);
    /// Control goes from here with this state; `None`: nowhere good.
    fn edge(&mut self, listing: &Listing, to: Option<u32>, state: &State);
    /// An exception that passes a call leads to `pad`.
    fn caught(&mut self, listing: &Listing, pad: Target, state: &State);
    /// A return, or a jump that leaves or may leave.
    fn leave(&mut self, listing: &Listing, at: u32, state: &State, context: &Context<'_>);
}

/// Carry one block out. Returns the number of its instructions.
fn block(
    listing: &Listing,
    context: &mut Context<'_>,
    jumps: &Jumps,
    leader: u32,
    mut state: State,
    follow: &mut impl Follow,
) -> usize {
    // Consecutive instructions under one condition: the state if it holds, `state` if not.
    let mut held: Option<(u8, Box<State>)> = None;
    // The flags are still those that the condition was looked up in.
    let mut flags = true;
    let mut at = leader;
    let mut count = 0;
    loop {
        let (instruction, joins) = match listing.joined(at) {
            Some((instruction, None)) => (instruction, false),
            Some((instruction, Some(_))) => (instruction, at != leader),
            None => {
                if let Some((_, other)) = held {
                    state.meet(&other);
                }
                follow.edge(listing, None, &state);
                return count;
            }
        };
        if joins {
            if let Some((_, other)) = held {
                state.meet(&other);
            }
            follow.edge(listing, Some(at), &state);
            return count;
        }
        count += 1;
        let condition = instruction.condition;
        if let Some((of, other)) = &held
            && condition != *of
            && condition != *of ^ 1
        {
            state.meet(other);
            held = None;
        }
        match &held {
            Some((of, other)) => {
                let mut both = state.clone();
                both.meet(other);
                both.dirty = true;
                if flags
                    && !matches!(instruction.flow, Flow::Call(_))
                    && let (Some(held), Some(not)) = (other.depth(), state.depth())
                    && held != not
                {
                    both.either = Some(Either {
                        condition: *of,
                        held: -held,
                        not: -not,
                    });
                }
                state.dirty = true;
                follow.visit(at, instruction, &mut both);
            }
            None => follow.visit(at, instruction, &mut state),
        }
        let next = at + u32::from(instruction.len);
        let conditional = condition != ALWAYS;
        if conditional && held.is_none() {
            let mut taken = Box::new(state.clone());
            // `cmp r0, #0` after a clone system call, then `eq` or `ne`
            match condition {
                0 => {
                    taken.zero();
                    state.nonzero();
                }
                1 => {
                    taken.nonzero();
                    state.zero();
                }
                _ => {}
            }
            held = Some((condition, taken));
            flags = true;
        }
        flags &= condition::keeps_flags(instruction, context.machine.sp);
        let active = match &mut held {
            Some((of, other)) if condition == *of => &mut **other,
            _ => &mut state,
        };
        if active.after != NO_CALL
            && context.machine.link
            && active.register(context.machine.ra) == Value::Unknown
            && pushes_link(instruction, context.machine)
        {
            follow.edge(listing, None, active);
            return count;
        }
        let stack = active.register(context.machine.sp);
        for &effect in instruction.effects() {
            active.apply(effect, context);
        }
        if active.register(context.machine.sp) == Value::Unknown
            && stack != Value::Unknown
            && let Some(switch) = switch::ahead(listing, context.machine, next)
        {
            active.switched(switch.ra, switch.depth);
        }
        let mut onward = true;
        match instruction.flow {
            Flow::Next => {}
            Flow::Call(target) => {
                let silent = instruction.last
                    || jumps.silent.contains(&at)
                    || target.is_some_and(|target| context.text.never_returns(target));
                let spared = target.and_then(|target| context.text.sparing.get(&target.svma));
                active.called(spared.copied().unwrap_or(0));
                active.after = at;
                if let Some(svma) = context.text.pad(listing.svma(at)) {
                    let thumb = listing.thumb;
                    follow.caught(listing, Target { svma, thumb }, active);
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
                let mut taken = active.clone();
                if nonzero {
                    taken.nonzero();
                    active.zero();
                } else {
                    taken.zero();
                    active.nonzero();
                }
                match listing.position(target) {
                    Some(to) => follow.edge(listing, Some(to), &taken),
                    None => follow.leave(listing, at, &taken, context),
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
        if !onward {
            if !conditional {
                return count;
            }
            // Only the path on which the condition holds is gone.
            match held.take() {
                Some((of, other)) if of != condition => state = *other,
                _ => {}
            }
        }
        at = next;
    }
}

/// The fix point.
struct Fix<'j> {
    jumps: &'j Jumps,
    states: Vec<Option<State>>,
    /// Position of the block that is carried out.
    at: u32,
    /// Positions whose states changed, nearest first.
    queue: BinaryHeap<Reverse<u32>>,
    waiting: Vec<bool>,
    /// Calls that seem not to return.
    found: Vec<u32>,
    /// Jumps that were resolved for the first time.
    tables: Vec<(u32, Targets)>,
    /// How deep the stack is at the shallowest call whose exceptions are caught. Those arguments of calls that are on
    /// the stack are gone where they are.
    floor: i32,
    /// That was found after deeper ones.
    shallow: bool,
    /// A jump with a frame is not resolved.
    open: bool,
    doubtful: bool,
}

impl<'j> Fix<'j> {
    fn new(states: usize, jumps: &'j Jumps) -> Self {
        Fix {
            jumps,
            states: vec![None; states],
            at: 0,
            queue: BinaryHeap::new(),
            waiting: vec![false; states],
            found: Vec::new(),
            tables: Vec::new(),
            floor: i32::MAX,
            shallow: false,
            open: false,
            doubtful: false,
        }
    }

    fn run(&mut self, listing: &Listing, context: &mut Context<'_>, entry: &State) {
        let Some(first) = listing.state(0) else {
            self.doubtful = true;
            return;
        };
        self.states[first] = Some(entry.clone());
        self.push(first, 0);
        let mut steps = 200 * listing.len() + 1000;
        let jumps = self.jumps;
        while let Some(Reverse(leader)) = self.queue.pop() {
            let Some(number) = listing.state(leader) else {
                continue;
            };
            self.waiting[number] = false;
            let Some(state) = self.states[number].clone() else {
                continue;
            };
            self.at = leader;
            let done = block(listing, context, jumps, leader, state, self);
            steps = steps.saturating_sub(done);
            if steps == 0 {
                self.doubtful = true;
                return;
            }
        }
    }

    fn push(&mut self, number: usize, at: u32) {
        if !self.waiting[number] {
            self.waiting[number] = true;
            self.queue.push(Reverse(at));
        }
    }
}

impl Follow for Fix<'_> {
    fn visit(&mut self, _: u32, _: &Instruction, _: &mut State) {}

    fn edge(&mut self, listing: &Listing, to: Option<u32>, state: &State) {
        let Some((at, number)) = to.and_then(|at| Some((at, listing.state(at)?))) else {
            // Ran off the function or into what is not code.
            match state.after {
                NO_CALL => self.doubtful = true,
                call => self.found.push(call),
            }
            return;
        };
        match &mut self.states[number] {
            Some(old) => {
                let conflict = matches!((old.depth(), state.depth()), (Some(a), Some(b)) if a != b);
                if conflict && old.after != state.after && !old.shares_frame(state) {
                    // The path that came from a call is the one that is not real; if both did, the one
                    // whose call is right before the place where they meet.
                    let culprit = match (old.after, state.after) {
                        (NO_CALL, call) | (call, NO_CALL) => call,
                        (a, b) if a < at && b < at => a.max(b),
                        (a, b) if a < at || b >= at => a.min(b),
                        (_, b) => b,
                    };
                    self.found.push(culprit);
                }
                let changed = if at <= self.at {
                    old.meet_again(state)
                } else {
                    old.meet(state)
                };
                if changed {
                    self.push(number, at);
                }
            }
            empty => {
                *empty = Some(state.clone());
                self.push(number, at);
            }
        }
    }

    fn caught(&mut self, listing: &Listing, pad: Target, state: &State) {
        if let Some(depth) = state.depth()
            && depth < self.floor
        {
            self.shallow |= self.floor != i32::MAX;
            self.floor = depth;
        }
        let landed = state.landed(self.floor);
        if listing
            .position(pad)
            .is_some_and(|to| listing.state(to).is_some())
        {
            self.edge(listing, listing.position(pad), &landed);
        }
    }

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
        if !jump || self.tables.iter().any(|table| table.0 == at) {
            return;
        }
        let targets = jump_table::targets(listing, context, at, state);
        if !targets.is_empty() {
            self.tables.push((at, targets));
        } else if state.has_frame() && !is_slot(instruction) {
            self.open = true;
        }
    }
}

/// The last pass.
struct Report<'r> {
    text: &'r Text<'r>,
    listing: &'r Listing,
    jumps: &'r Jumps,
    show: &'r mut dyn Show,
    floor: i32,
    /// A block begins.
    fresh: bool,
    returns: bool,
    unclean: bool,
    function: Function,
}

impl Follow for Report<'_> {
    fn visit(&mut self, at: u32, instruction: &Instruction, state: &mut State) {
        let svma = self.listing.svma(at);
        let function = &mut self.function;
        let end = svma + u64::from(instruction.len);
        function.instructions += 1;
        if !function.framed && state.has_frame() {
            function.framed = true;
            function.deepens = state.depth() > Some(self.text.machine.entry_depth);
        }
        match function.spans.last_mut() {
            Some(span) if span.1 == svma => span.1 = end,
            _ => function.spans.push((svma, end)),
        }
        let last = (!std::mem::take(&mut self.fresh))
            .then(|| function.shown.last_mut())
            .flatten();
        if let Some(shown) = self.show.show(svma, instruction.len, state, last) {
            function.shown.push(shown);
        }
        for &effect in instruction.effects() {
            // `add r3, pc`, with the distance in r3
            let mut relative = false;
            let value = match effect {
                Effect::Constant { value, .. } => Some(value),
                Effect::High { to, value } => match state.register(to) {
                    Value::Constant(low) => Some(low & 0xffff | u32::from(value) << 16),
                    _ => None,
                },
                Effect::Add { from, by, .. } => match state.register(from) {
                    Value::Constant(value) => {
                        relative = (4..=8).contains(&(by as u32).wrapping_sub(svma as u32));
                        Some(value.wrapping_add_signed(by))
                    }
                    _ => None,
                },
                Effect::Literal { svma, .. } => self.text.word(svma),
                _ => None,
            };
            // Half-made addresses (`adrp`) are none; of ARM code, those that say T32 or were made from pc.
            let whole = match self.text.machine.arch {
                Arch::Arm => value.is_some_and(|value| value & 1 == 1 || relative),
                Arch::Aarch64 => value.is_some_and(|value| value & 0xfff != 0),
                _ => true,
            };
            if whole
                && let Some(value) = value
                && self.text.is_text(u64::from(value))
            {
                function.addresses.push(u64::from(value));
            }
        }
        let machine = self.text.machine;
        // A call's result, at the start of what catches an exception.
        let result = if machine.link { 0 } else { 1 << machine.result };
        let foreign = machine.preserved | result;
        let kept = |register: u8| {
            foreign >> register & 1 == 1 && state.register(register) == Value::Entry(register)
        };
        function.alien |= bits(instruction.bases & machine.preserved).any(kept);
        function.alien |= instruction.effects().iter().any(|effect| match *effect {
            Effect::Add { to, from, .. } => to != from && from < 32 && kept(from),
            // Into the caller's frame
            Effect::Store { base, offset, .. } => {
                let moves = matches!(instruction.effects().first(), Some(Effect::Add { .. }));
                base == machine.sp
                    && !moves
                    && matches!(state.register(base), Value::Cfa(at) if at.saturating_add(offset) >= 0)
            }
            _ => false,
        });
        if matches!(instruction.flow, Flow::Call(_)) {
            match &mut function.after_calls {
                Some(known) => {
                    known.meet(state);
                }
                none => *none = Some(Box::new(state.clone())),
            }
        }
        // A handler returns to it: what is on the stack is the kernel's.
        if !function.framed
            && instruction.effects().contains(&Effect::SystemCall)
            && matches!(state.register(machine.call_number),
                Value::Constant(number) if machine.handled.contains(&number))
        {
            function.shown.clear();
        }
        match instruction.flow {
            Flow::Call(Some(target)) => {
                function.calls.push(target);
                if state.hangs_on_call() {
                    function.fragile.push(target);
                }
            }
            Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. }
                if self.listing.position(target).is_none() =>
            {
                self.returns = true;
                function.exits.push((target, state.clone()));
            }
            Flow::Indirect(_) | Flow::Table(_) | Flow::Return if self.jumps.is_resolved(at) => {
                let tables = self.jumps.tables.iter().filter(|table| table.0 == at);
                self.returns |= is_slot(instruction);
                for &svma in tables.flat_map(|table| &table.1.outside) {
                    let target = Target {
                        svma,
                        thumb: function.thumb,
                    };
                    function.exits.push((target, state.clone()));
                }
            }
            Flow::Return | Flow::Indirect(_) | Flow::Table(_) => self.returns = true,
            _ => {}
        }
    }

    fn edge(&mut self, _: &Listing, _: Option<u32>, _: &State) {}

    fn caught(&mut self, listing: &Listing, pad: Target, state: &State) {
        if listing.position(pad).is_none() {
            let landed = state.landed(self.floor);
            self.function.exits.push((pad, landed));
        }
    }

    fn leave(&mut self, listing: &Listing, at: u32, state: &State, _: &Context<'_>) {
        let resolved = listing
            .at(at)
            .is_some_and(|i| matches!(i.flow, Flow::Indirect(_)))
            && self.jumps.is_resolved(at);
        self.unclean |= state.has_frame() && !resolved;
        let machine = self.text.machine;
        if machine.link && !resolved {
            let link = state.register(machine.ra);
            self.function.relinks |= link == Value::Entry(machine.ra);
            let above = state.depth().map_or(0, i32::wrapping_neg);
            if above > 0 && link == Value::Unknown {
                self.function.above = Some(above);
            }
        }
    }
}

/// A prologue's `push {.., lr}`, `stp x29, x30, [sp, #-n]!`.
pub(super) fn pushes_link(instruction: &Instruction, machine: &Machine) -> bool {
    let effects = instruction.effects();
    machine.link
        && matches!(
            effects.first(),
            Some(Effect::Add { to, from, by }) if *to == machine.sp && from == to && *by < 0
        )
        && effects.iter().any(|effect| {
            matches!(effect, Effect::Store { base, mask, .. }
                if *base == machine.sp && mask >> machine.ra & 1 == 1)
        })
}

/// A jump through a slot of the global offset table, which the dynamic linker fills.
fn is_slot(instruction: &Instruction) -> bool {
    matches!(instruction.flow, Flow::Table(table) if table.form == TableForm::Slot)
}

/// An instruction that does nothing.
pub(super) fn is_filler(instruction: &Instruction) -> bool {
    instruction.effects().is_empty() && instruction.flow == Flow::Next
}
