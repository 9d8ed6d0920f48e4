//! The last pass over a function: reports the state at each instruction, and collects its calls,
//! exits and addresses.

use std::mem;
use std::sync::Arc;

use unspool_image::Arch;

use super::block::{self, BlockVisitor};
use super::fix::Found;
use super::joins::Joins;
use super::{Function, Jumps, Memory, Show, Shown, is_slot};
use crate::code::effect::{Effect, Flow, Instruction, Target};
use crate::code::listing::Listing;
use crate::code::state::{Context, State, Value, bits};
use crate::code::text::Text;

/// The state of the last pass.
pub(super) struct Report<'r> {
    text: &'r Text<'r>,
    listing: &'r Listing,
    jumps: &'r Jumps,
    show: &'r mut dyn Show,
    /// Whether to record the state after all calls.
    catches: bool,
    floor: i32,
    /// See [`Show::merges`].
    merges: bool,
    /// At the first instruction of a block.
    fresh: bool,
    returns: bool,
    unclean: bool,
    function: Function,
}

impl<'r> Report<'r> {
    /// Makes the last pass. `memory` and `found` hold the fixpoint.
    pub(super) fn of<'t: 'r>(
        memory: &'r mut Memory,
        context: &mut Context<'t>,
        jumps: &'r Jumps,
        found: &Found,
        catches: bool,
        show: &'r mut dyn Show,
    ) -> Function {
        let Memory {
            listing,
            joins,
            scratch,
            lists,
        } = memory;
        let listing = &*listing;
        let settled = found.calls.iter().all(|&call| jumps.is_noreturn(call));
        let mut report = Report {
            text: context.text,
            listing,
            jumps,
            merges: show.merges(),
            show,
            catches,
            floor: found.floor,
            fresh: true,
            returns: false,
            unclean: false,
            function: Function {
                start: listing.start,
                end: listing.end,
                thumb: listing.thumb,
                doubtful: found.doubtful || !settled,
                open: found.open,
                reach: listing.svma(listing.reach),
                depends_on_end: jumps.has_noreturn() || !found.unresolved.is_empty(),
                literals: listing.literals.clone(),
                tables: jumps
                    .tables
                    .iter()
                    .map(|(_, targets)| (targets.entries.start, targets.entries.end))
                    .collect(),
                ..lists.lend()
            },
        };
        for number in 0..listing.leaders.len() {
            if let Some(state) = joins.state(number) {
                scratch.state.copy_from(state);
                scratch.state.dirty = true;
                report.fresh = true;
                block::follow(listing, context, jumps, number, scratch, &mut report);
            }
        }
        report.dead(joins);
        let mut function = report.function;
        function.never_leaves = !report.returns;
        function.balanced = report.returns && !report.unclean;
        lists.take_back(&mut function);
        function
    }
}

/// Buffers that grow during the pass and are then copied at their exact size. Only a few functions
/// need large ones.
#[derive(Debug, Default)]
pub(super) struct Lists {
    spans: Vec<(u64, u64)>,
    shown: Vec<Shown>,
    calls: Vec<Target>,
    addresses: Vec<u64>,
}

impl Lists {
    /// A function with these empty buffers.
    fn lend(&mut self) -> Function {
        Function {
            spans: mem::take(&mut self.spans),
            shown: mem::take(&mut self.shown),
            calls: mem::take(&mut self.calls),
            addresses: mem::take(&mut self.addresses),
            ..Function::default()
        }
    }

    fn take_back(&mut self, function: &mut Function) {
        fn swap<T>(lent: &mut Vec<T>, own: &mut Vec<T>) {
            let mut exact = Vec::with_capacity(lent.len());
            exact.append(lent);
            *own = mem::replace(lent, exact);
        }
        swap(&mut function.spans, &mut self.spans);
        swap(&mut function.shown, &mut self.shown);
        swap(&mut function.calls, &mut self.calls);
        swap(&mut function.addresses, &mut self.addresses);
    }
}

impl BlockVisitor for Report<'_> {
    const VISITS: bool = true;

    fn visit(&mut self, at: u32, instruction: &Instruction, state: &mut State) {
        let svma = self.listing.svma(at);
        let function = &mut self.function;
        let end = svma + u64::from(instruction.len);
        function.instructions += 1;
        if !function.framed && state.has_frame() {
            function.framed = true;
            function.makes_room_first = state.depth() > Some(self.text.machine.entry_depth);
        }
        match function.spans.last_mut() {
            Some(span) if span.1 == svma => span.1 = end,
            _ => function.spans.push((svma, end)),
        }
        let fresh = std::mem::take(&mut self.fresh);
        let last = function.shown.last_mut().filter(|_| !fresh);
        match last {
            Some(Shown::Run(_, last, _)) if self.merges && !state.dirty && *last == svma => {
                *last = end;
            }
            last => {
                if let Some(shown) = self.show.show(svma, instruction.len, state, last) {
                    function.shown.push(shown);
                }
            }
        }
        let uses = instruction.bases & self.text.machine.preserved != 0;
        if uses || !instruction.effects().is_empty() {
            self.effects(svma, instruction, state);
        }
        if instruction.flow != Flow::Next {
            self.flow(at, instruction, state);
        }
    }

    fn edge(&mut self, _: &Listing, _: Option<u32>, _: &State) {}

    fn exception(&mut self, listing: &Listing, pad: Target, state: &State) {
        if listing.position(pad).is_none() {
            let landed = state.at_landing_pad(self.floor);
            self.function.exits.push((pad, Arc::new(landed.pack())));
        }
    }

    fn noreturn_call(&mut self, listing: &Listing, next: u32, state: &State) {
        if listing.at(next).is_none() {
            let target = self.target(listing.svma(next));
            self.function.dead.push((target, Arc::new(state.pack())));
        }
    }

    fn leave(&mut self, listing: &Listing, at: u32, state: &State, _: &Context<'_>) {
        let resolved = listing
            .at(at)
            .is_some_and(|i| matches!(i.flow, Flow::Indirect(_)))
            && self.jumps.is_resolved(at);
        self.unclean |= state.has_frame() && !resolved;
        let machine = self.text.machine;
        if resolved {
            return;
        }
        let above = state.depth().map_or(0, |depth| machine.entry_depth - depth);
        if machine.link {
            let link = state.register(machine.ra);
            self.function.restores_link |= link == Value::Entry(machine.ra);
            if above > 0 && link == Value::Unknown {
                self.function.above = Some(above);
            }
        } else if above > 0
            && let Some(Flow::Indirect(Some(_))) = listing.at(at).map(|found| found.flow)
        {
            self.function.above = Some(above);
        }
    }
}

impl Report<'_> {
    fn target(&self, svma: u64) -> Target {
        let thumb = self.listing.thumb;
        Target { svma, thumb }
    }

    /// Sorts the ranges, and keeps only dead code between two of them. Adds a jump there with the
    /// state of its target.
    fn dead(&mut self, joins: &Joins) {
        let Function { spans, dead, .. } = &mut self.function;
        spans.sort_unstable();
        let end = spans.last().map_or(0, |span| span.0);
        dead.retain(|(target, _)| target.svma < end);
        for index in 1..self.function.spans.len() {
            let at = self.function.spans[index - 1].1;
            if at >= self.function.spans[index].0 || self.listing.is_literal(at) {
                continue;
            }
            if let Some(jump) = self.text.decode(at, self.listing.thumb)
                && let (Flow::Jump(to), []) = (jump.flow, jump.effects())
                && let Some(to) = self.listing.position(to)
                && let Some(state) = self.listing.state(to).and_then(|to| joins.state(to))
            {
                let target = self.target(at);
                self.function.dead.push((target, Arc::new(state.pack())));
            }
        }
    }

    /// Collects the addresses that an instruction computes, and its uses of entry values.
    fn effects(&mut self, svma: u64, instruction: &Instruction, state: &State) {
        let function = &mut self.function;
        let machine = self.text.machine;
        // At the start of a landing pad this register holds a call's result.
        let result = if machine.link { 0 } else { 1 << machine.result };
        let foreign = machine.preserved | result;
        let kept = |register: u8| {
            foreign.checked_shr(register.into()).unwrap_or(0) & 1 == 1
                && state.is_as_at_entry(register)
        };
        function.depends_on_caller |= bits(instruction.bases & machine.preserved).any(kept);
        for &effect in instruction.effects() {
            // `add r3, pc`, with the distance in r3
            let mut relative = false;
            let value = match effect {
                Effect::Constant { value, .. } => Some(value),
                Effect::High { to, value } => match state.register(to) {
                    Value::Constant(low) => Some(low & 0xffff | u32::from(value) << 16),
                    _ => None,
                },
                Effect::Add { to, from, by } => {
                    function.depends_on_caller |= to != from && kept(from);
                    match state.register(from) {
                        Value::Constant(value) => {
                            relative = (4..=8).contains(&(by as u32).wrapping_sub(svma as u32));
                            Some(value.wrapping_add_signed(by))
                        }
                        _ => None,
                    }
                }
                Effect::Literal { svma, .. } => self.text.word(u64::from(svma)),
                // A store into the caller's frame
                Effect::Store { base, offset, .. } if base == machine.sp => {
                    let moves = matches!(instruction.effects().first(), Some(Effect::Add { .. }));
                    function.depends_on_caller |= !moves
                        && matches!(state.register(base), Value::Cfa(at) if at.saturating_add(offset) >= 0);
                    None
                }
                // A signal handler returns here, so the kernel built the stack.
                Effect::SystemCall => {
                    let number = state.register(machine.call_number);
                    if !function.framed
                        && matches!(number, Value::Constant(n) if machine.handled.contains(&n))
                    {
                        function.shown.clear();
                    }
                    None
                }
                _ => None,
            };
            let Some(value) = value else {
                continue;
            };
            // Partial addresses (`adrp`) do not count. In ARM code, only T32 addresses and
            // pc-relative ones count.
            let whole = match machine.arch {
                Arch::Arm => value & 1 == 1 || relative,
                Arch::Aarch64 => value & 0xfff != 0,
                _ => true,
            };
            if whole && self.text.is_text(u64::from(value)) {
                function.addresses.push(u64::from(value));
            }
        }
    }

    /// Collects calls and exits.
    fn flow(&mut self, at: u32, instruction: &Instruction, state: &State) {
        let function = &mut self.function;
        if self.catches && matches!(instruction.flow, Flow::Call(_)) {
            match &mut function.after_calls {
                Some(known) => {
                    known.meet(state);
                }
                none => *none = Some(Box::new(state.clone())),
            }
        }
        match instruction.flow {
            Flow::Call(Some(target)) => {
                function.calls.push(target);
                if state.loses_frame_at_call() {
                    function.clobber_sensitive.push(target);
                }
            }
            Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. }
                if self.listing.position(target).is_none() =>
            {
                self.returns = true;
                function.exits.push((target, Arc::new(state.pack())));
            }
            Flow::Indirect(_) | Flow::Table(_) | Flow::Return if self.jumps.is_resolved(at) => {
                let tables = self.jumps.tables.iter().filter(|table| table.0 == at);
                self.returns |= is_slot(instruction);
                let mut outside = tables.flat_map(|table| &table.1.outside).peekable();
                if outside.peek().is_some() {
                    let (kept, thumb) = (Arc::new(state.pack()), function.thumb);
                    let exits = outside.map(|&svma| (Target { svma, thumb }, kept.clone()));
                    function.exits.extend(exits);
                }
            }
            Flow::Return => self.returns = true,
            Flow::Indirect(_) | Flow::Table(_) => {
                self.returns = true;
                let machine = self.text.machine;
                let back = |register| state.register(register) == Value::Entry(machine.ra);
                if !matches!(instruction.flow, Flow::Indirect(Some(register)) if machine.link && back(register))
                {
                    function.unresolved.push(self.listing.svma(at));
                }
            }
            _ => {}
        }
    }
}
