//! One tracepoint: its address, its actions, and its counters.

use super::budget::Missed;

/// An action at a hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Record registers: one bit for each register number, the lowest first.
    Registers(Vec<u8>),
    /// Record memory at `offset` from a register, or from zero.
    Memory {
        register: Option<usize>,
        offset: u64,
        length: u64,
    },
    /// Evaluate an agent expression, which records data itself.
    Expression(Vec<u8>),
}

/// The client's source text for a part of a tracepoint. The stub keeps it for clients that come
/// later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub(crate) kind: Vec<u8>,
    pub(crate) text: Vec<u8>,
}

/// A tracepoint at one address. If gdb's tracepoint has several locations, several of these share
/// its number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tracepoint {
    pub(crate) number: u32,
    /// The address in the client's definition.
    pub(crate) address: u64,
    /// The address of the trap, and the trap's breakpoint kind.
    pub(crate) at: u64,
    pub(crate) kind: usize,
    pub(crate) enabled: bool,
    /// The bytes of the program that a jump may displace, as they were when the client defined the
    /// tracepoint. `None` unless the client wants a fast tracepoint.
    pub(crate) fast: Option<Vec<u8>>,
    /// True if it has a jump, as of the last decision about jumps.
    pub(crate) has_jump: bool,
    /// Number of hits after which tracing ends; 0 for no limit.
    pub(crate) passes: u64,
    pub(crate) condition: Option<Vec<u8>>,
    pub(crate) actions: Vec<Action>,
    /// Number of single steps after a hit (gdb's `while-stepping`).
    pub(crate) steps: u64,
    /// The actions after each step.
    pub(crate) step_actions: Vec<Action>,
    /// The actions as the client sent them, each with the letter that the stub uploads it with:
    /// `A`, or `S` for the actions after steps.
    pub(crate) action_texts: Vec<(char, Vec<u8>)>,
    pub(crate) sources: Vec<Source>,
    pub(crate) hits: u64,
    /// Bytes that its frames took in the buffer.
    pub(crate) usage: u64,
    /// Number of hits that were not recorded because the buffer was full.
    pub(crate) dropped: u64,
    /// The part of `dropped` that the client knows of.
    pub(crate) told: u64,
    /// The missed hits that the client knows of.
    pub(crate) told_missed: Missed,
}

impl Tracepoint {
    /// True if the pass count is reached.
    pub(crate) fn is_done(&self) -> bool {
        self.passes != 0 && self.hits >= self.passes
    }
}

/// The register sets that actions collect, one bit each. `of` returns the set of a register.
pub(crate) fn sets(actions: &[Action], of: impl Fn(usize) -> Option<usize>) -> u8 {
    let mut sets = 0;
    for action in actions {
        let Action::Registers(mask) = action else {
            continue;
        };
        for (index, byte) in mask.iter().enumerate() {
            let numbers = (0..8).filter(|bit| byte >> bit & 1 != 0);
            for set in numbers.filter_map(|bit| of(8 * index + bit)) {
                sets |= 1 << set;
            }
        }
    }
    sets
}
