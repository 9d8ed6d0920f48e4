//! Analysis of machine code: computes unwind rules without any unwind information.
//!
//! The classic method starts at a function's first instruction, adds up changes of the stack
//! pointer, and notes where the return address is stored. Here it is carried along every path, so
//! that the frame is known at every instruction, epilogues included. One decoder per instruction
//! set translates instructions to [`effect`]s. One engine (`flow`) follows control and meets the
//! [`state`]s of joining paths. A value on which the paths disagree becomes unknown, and an address
//! with an unknown frame gets no row.
//!
//! Function starts come from symbols, else from the exception index, call targets, relocations and
//! the shapes of prologues ([`starts`], [`mod@function_discovery`]). The instruction sets are A32,
//! T32, A64 and x86-64.

pub mod effect;
pub mod exits;
pub mod kept_argument;
pub mod onward;
pub(crate) mod region;
pub mod state;

mod a32;
mod a64;
mod byte_map;
mod callee_clobbers;
mod condition;
mod flow;
mod function_discovery;
mod handlers;
mod jump_table;
mod landing;
mod listing;
mod lsda;
pub(crate) mod machine;
mod plt_resolver;
mod pointers;
mod rules;
mod stack_switch;
pub(crate) mod starts;
mod t32;
pub(crate) mod text;
mod x86;

use std::ops::Range;

use unspool_image::{Arch, Image};

use crate::rows::Rows;
use effect::Instruction;
use flow::{Show, Shown};
use function_discovery::Discovery;
use rules::Rules;
use state::State;
use text::Text;

pub use flow::Function;

/// The result of analysing one image.
#[derive(Debug)]
pub struct Analysis {
    rows: Rows,
    starts: Vec<u64>,
}

impl Analysis {
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The rows and the function starts.
    pub(crate) fn into_parts(self) -> (Rows, Vec<u64>) {
        (self.rows, self.starts)
    }

    /// The start of the function that contains `svma`.
    pub fn function_start(&self, svma: u64) -> Option<u64> {
        let after = self.starts.partition_point(|&start| start <= svma);
        self.starts.get(after.checked_sub(1)?).copied()
    }

    /// The start of the first function after `svma`.
    pub fn next_start(&self, svma: u64) -> Option<u64> {
        let after = self.starts.partition_point(|&start| start <= svma);
        self.starts.get(after).copied()
    }

    /// The number of analysed functions.
    pub fn functions(&self) -> usize {
        self.starts.len()
    }
}

/// Analyses all code of `image`, with one thread per processor, at most eight. If `symbols` is
/// true, it uses the image's symbols.
pub fn analyze(image: &Image, symbols: bool) -> Analysis {
    let processors = std::thread::available_parallelism();
    analyze_by(
        image,
        symbols,
        processors.map_or(1, |count| count.get().min(8)),
    )
}

/// Like [`analyze`], with `threads` threads. The result does not depend on their number.
pub fn analyze_by(image: &Image, symbols: bool, threads: usize) -> Analysis {
    let mut rules = Rules::new(image.arch());
    let mut starts = Vec::new();
    let mut runs = Vec::new();
    discover(image, symbols, threads, &mut rules, &mut |function| {
        starts.push(function.start);
        runs.extend(Rules::runs(&function.shown));
    });
    starts.sort_unstable();
    starts.dedup();
    Analysis {
        rows: rules.rows(&runs),
        starts,
    }
}

/// Whether an instruction of `image` calls an address in `range` directly. Always false for
/// ARM, where data between instructions prevents a reliable answer.
pub fn is_called(image: &Image, range: &Range<u64>) -> bool {
    machine::machine(image.arch()).is_some_and(|machine| {
        let text = Text::sparse(machine, image, false);
        starts::is_called(image, &text, range)
    })
}

/// Passes the address and the state of every instruction in `image` to `visit`. If an address
/// appears twice, the first state is the more reliable one.
pub fn states(image: &Image, symbols: bool, visit: &mut dyn FnMut(u64, &State)) {
    discover(image, symbols, 1, &mut States, &mut |function| {
        for shown in &function.shown {
            if let Shown::State(svma, _, state) = shown {
                visit(*svma, state);
            }
        }
    });
}

/// Like [`states`], for the states that walks use, which come from single regions ([`region`]).
pub fn states_by_region(image: &Image, symbols: bool, visit: &mut dyn FnMut(u64, &State)) {
    let Some(outline) = region::Outline::new(image, symbols) else {
        return;
    };
    for text in image.text_ranges() {
        let mut at = text.start;
        while at < text.end
            && let Some(next) = region::states(image, &outline, at, symbols, visit)
        {
            at = next.max(at + 1);
        }
    }
}

/// Records the state at every instruction.
struct States;

impl Show for States {
    fn merges(&self) -> bool {
        false
    }

    fn show(
        &mut self,
        svma: u64,
        len: u8,
        state: &mut State,
        _: Option<&mut Shown>,
    ) -> Option<Shown> {
        Some(Shown::State(svma, len, Box::new(state.clone())))
    }
}

/// The length of the instruction at the start of `bytes`. `None` if it is unknown or invalid.
/// `thumb` selects T32 on ARM.
pub fn instruction_len(arch: Arch, bytes: &[u8], thumb: bool) -> Option<u8> {
    instruction(arch, bytes, 0, thumb).map(|found| found.len)
}

/// Decodes the first instruction in `bytes`, which lies at `svma`. `thumb` selects T32 on ARM.
///
/// Returns `None` if the decoder knows no such instruction.
pub fn instruction(arch: Arch, bytes: &[u8], svma: u64, thumb: bool) -> Option<Instruction> {
    text::decode(machine::machine(arch)?, bytes, svma, thumb)
}

fn discover(
    image: &Image,
    symbols: bool,
    threads: usize,
    show: &mut dyn Show,
    visit: &mut dyn FnMut(&Function),
) {
    let Some(machine) = machine::machine(image.arch()) else {
        return;
    };
    let text = Text::new(machine, image, symbols);
    Discovery::new(image, text, symbols).run(threads, show, visit);
}

#[cfg(test)]
mod tests;
