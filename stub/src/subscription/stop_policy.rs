//! Which events stop the program for the controlling client, and which signals pass.

use std::collections::BTreeSet;

/// A set of the kernel's signal numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SignalSet(u128);

impl SignalSet {
    /// Adds a signal.
    pub(crate) fn insert(&mut self, signal: i32) {
        self.0 |= 1 << (signal & 127);
    }

    /// All signals.
    pub(crate) fn all() -> SignalSet {
        SignalSet(u128::MAX)
    }

    /// True if the set contains this signal.
    pub(crate) fn contains(self, signal: i32) -> bool {
        self.0 >> (signal & 127) & 1 != 0
    }
}

/// A set of system calls.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) enum SyscallFilter {
    #[default]
    None,
    All,
    /// The calls with these numbers.
    These(BTreeSet<u64>),
}

impl SyscallFilter {
    /// True if the set contains the call with this number.
    pub(crate) fn contain(&self, number: u64) -> bool {
        match self {
            SyscallFilter::None => false,
            SyscallFilter::All => true,
            SyscallFilter::These(numbers) => numbers.contains(&number),
        }
    }
}

/// The controlling client's choice of events to stop at.
#[derive(Clone, Default)]
pub(crate) struct StopPolicy {
    /// Signals that are delivered without a stop.
    pub(crate) pass: SignalSet,
    /// Signals that detaching may deliver. `None` means all.
    pub(crate) deliver: Option<SignalSet>,
    /// Stop before a signal ends the process, even if the signal is in `pass`.
    pub(crate) fatal: bool,
    /// Stop when a thread begins and when it ends.
    pub(crate) thread_events: bool,
    /// Stop at the entry and the return of these system calls.
    pub(crate) calls: SyscallFilter,
    /// Stop at an exec.
    pub(crate) execs: bool,
    /// Stop at a fork, and hold the new process.
    pub(crate) forks: bool,
    /// Stop at a vfork and hold the new process; stop again when the vfork is over.
    pub(crate) vforks: bool,
    /// Report when no thread is left that may run.
    pub(crate) no_resumed: bool,
}
