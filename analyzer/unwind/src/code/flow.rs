//! Follows one function from its entry, and computes the state at every instruction.
//!
//! Discovery ([`super::listing`]) finds all reachable instructions and the places where paths join.
//! A fixpoint iteration over the blocks meets the states of joining paths: it keeps the values on
//! which all agree. A last pass over the blocks reports the state at every instruction.
//!
//! Calls that do not return are found without a list of names, because the code after them makes
//! no sense. A state remembers the last call on its path
//! ([`State::after`]). The call does not return if its path does one of the following:
//! - it joins a path with another stack pointer,
//! - it runs off the function,
//! - it returns with a stack pointer other than at entry,
//! - it pushes a link register that the call has overwritten (the next function's prologue).
//!
//! The function is then analysed again without the call's fall-through.
//!
//! Jumps through tables are resolved from the state at the jump ([`super::jump_table`]). Unresolved
//! jumps are assumed to lead to orphans: code between the function's reached parts that nothing
//! else leads to. Each orphan gets the state on which all of these jumps agree.

mod block;
mod fix;
mod function;
mod joins;
mod jumps;
mod report;

use super::effect::{Effect, Flow, Instruction, TableForm, Target};
use super::listing::Listing;
use super::machine::Machine;
use super::state::{Context, State};
use super::text::Text;
use block::Scratch;
use fix::Found;
use joins::Joins;
use jumps::Outcome;
use report::{Lists, Report};

pub use function::Function;
pub(super) use function::{Show, Shown};
pub(super) use jumps::Jumps;

/// Maximum number of analysis rounds for one function.
const MAX_ROUNDS: usize = 80;
/// Buffers that are reused from function to function.
pub(super) struct Memory {
    listing: Listing,
    joins: Joins,
    scratch: Scratch,
    lists: Lists,
}

impl Memory {
    pub(super) fn new(machine: &'static Machine) -> Memory {
        Memory {
            listing: Listing::default(),
            joins: Joins::default(),
            scratch: Scratch::new(machine),
            lists: Lists::default(),
        }
    }
}

/// Follows functions of one text.
pub(super) struct Engine<'t> {
    context: Context<'t>,
    memory: &'t mut Memory,
    catches: bool,
}

impl<'t> Engine<'t> {
    /// An engine that also records the state after all calls if `catches` is set.
    pub(super) fn new(text: &'t Text<'t>, memory: &'t mut Memory, catches: bool) -> Engine<'t> {
        Engine {
            context: Context {
                text,
                machine: text.machine,
                tables: Vec::new(),
                bases: Vec::new(),
            },
            memory,
            catches,
        }
    }

    /// Follows the function at `start`, which ends before `end`.
    ///
    /// `whole` means that the next function starts at `end`, so that all code before it belongs to
    /// this one.
    pub(super) fn follow(
        &mut self,
        start: Target,
        end: u64,
        entry: &State,
        whole: bool,
        show: &mut dyn Show,
    ) -> Function {
        let context = &mut self.context;
        let memory = &mut *self.memory;
        let shift = context.machine.shift(start.thumb);
        memory.listing.begin(start, end, shift);
        context.tables.clear();
        context.bases.clear();
        let mut jumps = Jumps::default();
        let mut found: Option<Found> = None;
        for round in 0.. {
            match &found {
                Some(found) => memory
                    .listing
                    .discover_more(context, &jumps, &found.resolved),
                None => memory.listing.discover(context, &jumps),
            }
            let bases = context.bases.len();
            let continued = found.is_some();
            let mut now = fix::find(memory, context, &jumps, entry, found.take());
            let outcome = match round {
                MAX_ROUNDS.. => Outcome::None,
                _ if continued && now.depends_on_order() => Outcome::Others,
                _ => match jumps.update(&mut now, context.bases.len() > bases) {
                    Outcome::None if whole && now.open => {
                        jumps.add_orphan(&memory.listing, context)
                    }
                    outcome => outcome,
                },
            };
            match outcome {
                Outcome::More => found = now.can_continue().then_some(now),
                Outcome::Others => {}
                Outcome::None => {
                    return Report::of(memory, context, &jumps, &now, self.catches, show);
                }
            }
        }
        unreachable!("the loop above returns")
    }
}

/// Whether this is a prologue's `push {.., lr}` or `stp x29, x30, [sp, #-n]!`.
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

/// Whether this is a jump through a slot of the global offset table, which the dynamic linker
/// fills.
fn is_slot(instruction: &Instruction) -> bool {
    matches!(instruction.flow, Flow::Table(table) if table.form == TableForm::Slot)
}

/// Whether the instruction does nothing.
pub(super) fn is_filler(instruction: &Instruction) -> bool {
    instruction.effects().is_empty() && instruction.flow == Flow::Next
}
