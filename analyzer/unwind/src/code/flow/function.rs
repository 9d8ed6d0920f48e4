//! The result of analysing one function.

use std::sync::Arc;

use crate::code::effect::Target;
use crate::code::rules::Rules;
use crate::code::state::{PackedState, State};

/// The result for one function or one part of a function.
#[derive(Debug, Default)]
pub struct Function {
    /// First address. For code that nothing leads to, the start of its function.
    pub start: u64,
    /// Upper limit of its addresses (exclusive).
    pub end: u64,
    /// Whether it is T32 code.
    pub thumb: bool,
    /// Address ranges of its code, in order: first, one past the last.
    pub spans: Vec<(u64, u64)>,
    /// Number of its instructions.
    pub instructions: usize,
    /// The output of [`Show`] for each instruction.
    pub shown: Vec<Shown>,
    /// Targets of calls.
    pub calls: Vec<Target>,
    /// Calls after which the frame is known only if the callee preserves registers that it may
    /// clobber.
    pub clobber_sensitive: Vec<Target>,
    /// The meet of the states after all calls: the state at a landing pad.
    pub(crate) after_calls: Option<Box<State>>,
    /// Jumps with unknown targets.
    pub(crate) unresolved: Vec<u64>,
    /// Jumps out of the function, with the state there.
    pub(crate) exits: Vec<(Target, Arc<PackedState>)>,
    /// Code between its parts that nothing leads to, with the state it would have. Compilers leave
    /// some after calls that do not return.
    pub(crate) dead: Vec<(Target, Arc<PackedState>)>,
    /// Addresses of words that it loads from the text.
    pub literals: Vec<u64>,
    /// Ranges of its jump tables: first address, one past the last.
    pub tables: Vec<(u64, u64)>,
    /// Code addresses that it computes.
    pub addresses: Vec<u64>,
    /// It uses the entry value of a callee-saved register, or its caller's frame, so it is no
    /// function.
    pub depends_on_caller: bool,
    /// One past the highest address that was examined.
    pub reach: u64,
    /// A jump with a frame has an unknown target.
    pub open: bool,
    /// A jump has an unknown target, or a call does not return. The result may then depend on
    /// `end`.
    pub depends_on_end: bool,
    /// A path could not be followed or ran into data.
    pub doubtful: bool,
    /// No path returns or leaves.
    pub never_leaves: bool,
    /// The stack pointer moves somewhere.
    pub framed: bool,
    /// At every exit, the stack pointer has its entry value.
    pub balanced: bool,
    /// The first change of the stack pointer makes room.
    pub makes_room_first: bool,
    /// At a tail jump, how far the stack pointer is above its entry value. With a link register,
    /// only if that register holds another return address.
    pub above: Option<i32>,
    /// At a tail jump, the link register holds the function's return address.
    pub restores_link: bool,
}

impl Function {
    /// Whether the result stays the same if the function ends before `end`. If so, sets its end.
    pub(crate) fn fits(&mut self, end: u64) -> bool {
        let fits = self.would_fit(end);
        if fits {
            self.end = end;
        }
        fits
    }

    /// Whether the result stays the same if the function ends before `end`.
    pub(crate) fn would_fit(&self, end: u64) -> bool {
        let beyond = self.end..end;
        if beyond.is_empty() {
            self.reach <= end
        } else {
            !self.doubtful
                && !self.depends_on_end
                && self.tables.is_empty()
                && !self.exits.iter().any(|exit| beyond.contains(&exit.0.svma))
        }
    }
}

/// The output for one instruction, or for a run of instructions with the same rule.
#[derive(Debug)]
pub enum Shown {
    /// First address, one past the last, rule number.
    Run(u64, u64, u32),
    /// Address, length, and the state.
    State(u64, u8, Box<State>),
}

/// Receives the state at every instruction, block by block. Returns the output to store in the
/// function.
pub(in crate::code) trait Show {
    /// The rule numbering, if the output consists of rules. Each thread may have its own.
    fn rules(&mut self) -> Option<&mut Rules> {
        None
    }
    /// Whether an instruction may share the output of the one before it if no input of a rule
    /// changed.
    fn merges(&self) -> bool;
    /// Called for each instruction. `last` is the output for the instruction before it.
    fn show(
        &mut self,
        svma: u64,
        len: u8,
        state: &mut State,
        last: Option<&mut Shown>,
    ) -> Option<Shown>;
}
