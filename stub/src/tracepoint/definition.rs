//! A tracepoint: where it is, what is collected there, and how often it has been hit.

use super::budget::Missed;

/// An action at a hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Note registers; a bit for each number, the lowest first.
    Registers(Vec<u8>),
    /// Note memory at `offset` from a register, or from zero.
    Memory {
        register: Option<usize>,
        offset: u64,
        length: u64,
    },
    /// Evaluate an agent expression, which notes what it wants.
    Expression(Vec<u8>),
}

/// The client's own words for a part of a tracepoint, for the next client that asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub(crate) kind: Vec<u8>,
    pub(crate) text: Vec<u8>,
}

/// A tracepoint at one address. One with several locations is several of these, with one number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tracepoint {
    pub(crate) number: u32,
    /// As the client names it.
    pub(crate) address: u64,
    /// Where its trap is, and that one's breakpoint kind.
    pub(crate) at: u64,
    pub(crate) kind: usize,
    pub(crate) enabled: bool,
    /// The client wants hits noted without a stop; these bytes of the program may be moved for it,
    /// as they were when it said so.
    pub(crate) fast: Option<Vec<u8>>,
    /// That is so now, or was when it was decided last.
    pub(crate) has_jump: bool,
    /// After so many hits tracing ends; 0: never.
    pub(crate) passes: u64,
    pub(crate) condition: Option<Vec<u8>>,
    pub(crate) actions: Vec<Action>,
    /// Number of single steps after a hit (gdb's `while-stepping`).
    pub(crate) steps: u64,
    /// The actions after each step.
    pub(crate) step_actions: Vec<Action>,
    /// The actions as they came, each with the letter that it is uploaded with: `A`, or `S` for
    /// those after steps.
    pub(crate) action_texts: Vec<(char, Vec<u8>)>,
    pub(crate) sources: Vec<Source>,
    pub(crate) hits: u64,
    /// Bytes of the buffer that its frames took.
    pub(crate) usage: u64,
    /// Hits that were not noted for lack of room.
    pub(crate) dropped: u64,
    /// How many of these the client has been told of.
    pub(crate) told: u64,
    /// What it has been told of pauses.
    pub(crate) told_missed: Missed,
}

impl Tracepoint {
    /// Whether it has been hit as often as it was to be.
    pub(crate) fn is_done(&self) -> bool {
        self.passes != 0 && self.hits >= self.passes
    }
}

/// The register sets that actions want, one bit each; `of` tells a register's.
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
