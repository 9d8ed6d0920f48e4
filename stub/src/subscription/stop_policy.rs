//! Which events stop the program for the client in control, and which signals pass.

use std::collections::BTreeSet;

/// A set of the kernel's signal numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SignalSet(u128);

impl SignalSet {
    /// Adds one.
    pub(crate) fn insert(&mut self, signal: i32) {
        self.0 |= 1 << (signal & 127);
    }

    /// All signals.
    pub(crate) fn all() -> SignalSet {
        SignalSet(u128::MAX)
    }

    /// Whether it is in the set.
    pub(crate) fn contains(self, signal: i32) -> bool {
        self.0 >> (signal & 127) & 1 != 0
    }
}

/// System calls.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) enum SyscallFilter {
    #[default]
    None,
    All,
    /// Those with these numbers.
    These(BTreeSet<u64>),
}

impl SyscallFilter {
    /// Whether it is one of these.
    pub(crate) fn contain(&self, number: u64) -> bool {
        match self {
            SyscallFilter::None => false,
            SyscallFilter::All => true,
            SyscallFilter::These(numbers) => numbers.contains(&number),
        }
    }
}

/// What the client wants to be told and what not.
#[derive(Clone, Default)]
pub(crate) struct StopPolicy {
    /// Signals that are delivered without a stop.
    pub(crate) pass: SignalSet,
    /// Signals that detaching may deliver; `None`: all.
    pub(crate) deliver: Option<SignalSet>,
    /// Stop before a signal ends the process, though it is to be passed.
    pub(crate) fatal: bool,
    /// Stop when a thread begins and when it ends.
    pub(crate) thread_events: bool,
    /// Stop where these begin and end.
    pub(crate) calls: SyscallFilter,
    /// Stop at an exec.
    pub(crate) execs: bool,
    /// Stop at a fork, and hold the new process.
    pub(crate) forks: bool,
    /// Stop at a vfork, and hold the new process; stop where that is over.
    pub(crate) vforks: bool,
    /// Report that nothing is left to run.
    pub(crate) no_resumed: bool,
}
