//! One tracepoint: its address, its actions, and its counters.

use std::collections::BTreeMap;
use std::collections::btree_map::{Values, ValuesMut};

use super::budget::Missed;

/// An action at a hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Record the registers of these sets, one bit each.
    Registers(u8),
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
    /// Bytes that its frames took in the buffer, and the size of the latest one.
    pub(crate) usage: u64,
    pub(crate) frame_size: usize,
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

/// A tracepoint's number, and the address in its definition.
pub(crate) type Key = (u32, u64);

/// The tracepoints of an experiment.
#[derive(Default)]
pub(crate) struct Definitions {
    by_key: BTreeMap<Key, Tracepoint>,
    /// The keys at each address of a trap.
    at: BTreeMap<u64, Vec<Key>>,
}

impl Definitions {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Tracepoint> {
        self.by_key.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Tracepoint> {
        self.by_key.get_mut(key)
    }

    pub(crate) fn values(&self) -> Values<'_, Key, Tracepoint> {
        self.by_key.values()
    }

    pub(crate) fn values_mut(&mut self) -> ValuesMut<'_, Key, Tracepoint> {
        self.by_key.values_mut()
    }

    /// Adds a tracepoint, and returns the former one with its key.
    pub(crate) fn insert(&mut self, tracepoint: Tracepoint) -> Option<Tracepoint> {
        let key = (tracepoint.number, tracepoint.address);
        let former = self.remove(&key);
        let here = self.at.entry(tracepoint.at).or_default();
        here.insert(here.partition_point(|other| *other < key), key);
        self.by_key.insert(key, tracepoint);
        former
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Tracepoint> {
        let former = self.by_key.remove(key)?;
        if let Some(here) = self.at.get_mut(&former.at) {
            here.retain(|other| other != key);
            if here.is_empty() {
                self.at.remove(&former.at);
            }
        }
        Some(former)
    }

    /// True if there is a tracepoint whose trap is at this address.
    pub(crate) fn are_at(&self, at: u64) -> bool {
        self.at.contains_key(&at)
    }

    /// Calls `with` for each tracepoint whose trap is at this address, in the order of the keys.
    pub(crate) fn each_at(&mut self, at: u64, mut with: impl FnMut(&mut Tracepoint)) {
        for key in self.at.get(&at).into_iter().flatten() {
            self.by_key.get_mut(key).map(&mut with);
        }
    }
}

/// The register sets that actions collect, one bit each.
pub(crate) fn sets(actions: &[Action]) -> u8 {
    let sets = actions.iter().map(|action| match action {
        Action::Registers(sets) => *sets,
        _ => 0,
    });
    sets.fold(0, |all, sets| all | sets)
}
