//! The last pass over a function: what is known at each instruction, and what it calls, names and leaves to.

use unspool_image::Arch;

use super::block::{self, Follow};
use super::fix::Found;
use super::{Function, Jumps, Memory, Show, is_slot};
use crate::code::effect::{Effect, Flow, Instruction, Target};
use crate::code::listing::Listing;
use crate::code::state::{Context, State, Value, bits};
use crate::code::text::Text;

/// The last pass.
pub(super) struct Report<'r> {
    text: &'r Text<'r>,
    listing: &'r Listing,
    jumps: &'r Jumps,
    show: &'r mut dyn Show,
    /// What is known behind all calls is asked for.
    catches: bool,
    floor: i32,
    /// A block begins.
    fresh: bool,
    returns: bool,
    unclean: bool,
    function: Function,
}

impl<'r> Report<'r> {
    /// `memory` and `found` are the fix point.
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
        } = memory;
        let listing = &*listing;
        let settled = found.calls.iter().all(|&call| jumps.is_silent(call));
        let mut report = Report {
            text: context.text,
            listing,
            jumps,
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
                bounded: jumps.has_silent() || found.unresolved,
                literals: listing.literals.clone(),
                tables: jumps
                    .tables
                    .iter()
                    .map(|(_, targets)| (targets.entries.start, targets.entries.end))
                    .collect(),
                ..Function::default()
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
        let mut function = report.function;
        function.endless = !report.returns;
        function.clean = report.returns && !report.unclean;
        function.spans.sort_unstable();
        function
    }
}

impl Follow for Report<'_> {
    const VISITS: bool = true;

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
                Effect::Literal { svma, .. } => self.text.word(u64::from(svma)),
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
        if self.catches && matches!(instruction.flow, Flow::Call(_)) {
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
                function.exits.push((target, state.keep()));
            }
            Flow::Indirect(_) | Flow::Table(_) | Flow::Return if self.jumps.is_resolved(at) => {
                let tables = self.jumps.tables.iter().filter(|table| table.0 == at);
                self.returns |= is_slot(instruction);
                for &svma in tables.flat_map(|table| &table.1.outside) {
                    let target = Target {
                        svma,
                        thumb: function.thumb,
                    };
                    function.exits.push((target, state.keep()));
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
            self.function.exits.push((pad, landed.keep()));
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
