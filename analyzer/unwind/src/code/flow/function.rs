//! What the analysis of one function gives.

use std::sync::Arc;

use crate::code::effect::Target;
use crate::code::rules::Rules;
use crate::code::state::{PackedState, State};

/// One function, or a part of one.
#[derive(Debug, Default)]
pub struct Function {
    /// First address; of code that nothing leads to, its function's.
    pub start: u64,
    /// One past the last address it may have.
    pub end: u64,
    /// T32.
    pub thumb: bool,
    /// Addresses of its code, in order: first, one past the last.
    pub spans: Vec<(u64, u64)>,
    /// Number of its instructions.
    pub instructions: usize,
    /// What was asked for of every instruction: see [`Show`].
    pub shown: Vec<Shown>,
    /// Targets of calls.
    pub calls: Vec<Target>,
    /// Calls behind which the frame is known only if they leave registers as they are that they may write.
    pub fragile: Vec<Target>,
    /// What is known behind every call: where an exception is caught.
    pub(crate) after_calls: Option<Box<State>>,
    /// Its jumps that lead where nothing tells.
    pub(crate) unresolved: Vec<u64>,
    /// Jumps out of the function and the state there.
    pub(crate) exits: Vec<(Target, Arc<PackedState>)>,
    /// Code between its parts that nothing leads to, and what would be known there: compilers leave some behind calls that do
    /// not return.
    pub(crate) dead: Vec<(Target, Arc<PackedState>)>,
    /// Words that are loaded from the text.
    pub literals: Vec<u64>,
    /// Where its jump tables lie: first address, one past the last.
    pub tables: Vec<(u64, u64)>,
    /// Addresses of code that it computes.
    pub addresses: Vec<u64>,
    /// It uses what a register that calls preserve held before, or its caller's frame: it is no function.
    pub alien: bool,
    /// No address that was taken for its own is this or beyond.
    pub reach: u64,
    /// A jump with a frame leads where nothing tells.
    pub open: bool,
    /// A jump leads where nothing tells, or a call was seen not to return: where it ends may matter.
    pub bounded: bool,
    /// Something in it could not be followed or is not code.
    pub doubtful: bool,
    /// No path returns or leaves.
    pub endless: bool,
    /// The stack pointer moves somewhere.
    pub framed: bool,
    /// Where it returns or leaves, the stack pointer is where it was at the start.
    pub clean: bool,
    /// The first that it does with the stack pointer is to make room.
    pub deepens: bool,
    /// How far above where it was at the start the stack pointer is where it jumps away, with another
    /// return address in the link register if there is one.
    pub above: Option<i32>,
    /// Where it jumps away, its return address is in the link register.
    pub relinks: bool,
}

impl Function {
    /// Whether it is the same if it ends before `end`; if so, it does from now on.
    pub(crate) fn fits(&mut self, end: u64) -> bool {
        let fits = self.would_fit(end);
        if fits {
            self.end = end;
        }
        fits
    }

    /// Whether it is the same if it ends before `end`.
    pub(crate) fn would_fit(&self, end: u64) -> bool {
        let beyond = self.end..end;
        if beyond.is_empty() {
            self.reach <= end
        } else {
            !self.doubtful
                && !self.bounded
                && self.tables.is_empty()
                && !self.exits.iter().any(|exit| beyond.contains(&exit.0.svma))
        }
    }
}

/// One instruction, or a run of instructions of which the same is known.
#[derive(Debug)]
pub enum Shown {
    /// First address, one past the last, number of the rule.
    Run(u64, u64, u32),
    /// Address, length, and everything known there.
    State(u64, u8, Box<State>),
}

/// Receives the state at every instruction, block by block. Returns what the function is to keep of it.
pub(in crate::code) trait Show {
    /// What numbers rules, if that is what this does: several threads may, each with its own.
    fn rules(&mut self) -> Option<&mut Rules> {
        None
    }
    /// Of an instruction before which nothing changed that a rule is made of, the same is shown as of the one before it.
    fn merges(&self) -> bool;
    /// A new instruction; `last` is what the one before it gave.
    fn show(
        &mut self,
        svma: u64,
        len: u8,
        state: &mut State,
        last: Option<&mut Shown>,
    ) -> Option<Shown>;
}
