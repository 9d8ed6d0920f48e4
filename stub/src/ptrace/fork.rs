//! Processes that the traced one makes and that are not debugged.
//!
//! A child with a copy of the memory is let go once it is clean. A child that runs in the same
//! memory (vfork(2)) stays traced until it executes a file: it may meet traps.

use std::collections::HashMap;

use crate::sys::Tid;
use crate::sys::ptrace;

use super::process::Process;
use super::thread::{At, Running, Stopped};

/// The memory that a child runs in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChildMemory {
    /// A copy of the process's.
    Copy,
    /// The process's own.
    Shared,
}

/// A process made by the traced one, or by such a process.
pub(crate) struct Child {
    memory: ChildMemory,
    /// It is at a trap in shared memory, at this address.
    at_trap: Option<(Stopped, u64)>,
    /// Where it last executed what was taken for an illegal instruction.
    misread: Option<u64>,
}

/// The children of a process, by their ids.
#[derive(Default)]
pub(crate) struct Children(HashMap<Tid, Child>);

impl Children {
    /// Adds one.
    pub(crate) fn add(&mut self, tid: Tid, memory: ChildMemory) {
        let child = Child {
            memory,
            at_trap: None,
            misread: None,
        };
        self.0.insert(tid, child);
    }

    /// Takes one out, to [`put_back`](Self::put_back).
    pub(crate) fn take(&mut self, tid: Tid) -> Option<Child> {
        self.0.remove(&tid)
    }

    /// Adds one that was taken out.
    pub(crate) fn put_back(&mut self, tid: Tid, child: Child) {
        self.0.insert(tid, child);
    }

    /// Whether this is one of them.
    pub(crate) fn contains(&self, tid: Tid) -> bool {
        self.0.contains_key(&tid)
    }

    /// All ids.
    pub(crate) fn tids(&self) -> Vec<Tid> {
        self.0.keys().copied().collect()
    }

    /// Any of them.
    pub(crate) fn any_tid(&self) -> Option<Tid> {
        self.0.keys().next().copied()
    }

    /// The memory that a child runs in.
    pub(crate) fn memory(&self, tid: Tid) -> Option<ChildMemory> {
        self.0.get(&tid).map(|child| child.memory)
    }

    /// Whether a child waits at a trap.
    pub(crate) fn is_at_trap(&self, tid: Tid) -> bool {
        let child = self.0.get(&tid);
        child.is_some_and(|child| child.at_trap.is_some())
    }

    /// Whether any child waits at a trap.
    pub(crate) fn any_at_trap(&self) -> bool {
        self.0.values().any(|child| child.at_trap.is_some())
    }

    /// A child has stopped at the trap at this address.
    pub(crate) fn set_at_trap(&mut self, tid: Tid, stopped: Stopped, at: u64) {
        if let Some(child) = self.0.get_mut(&tid) {
            child.at_trap = Some((stopped, at));
        }
    }

    /// A child that waits at a trap does so no longer.
    pub(crate) fn take_at_trap(&mut self, tid: Tid) -> Option<(Stopped, u64)> {
        self.0.get_mut(&tid)?.at_trap.take()
    }
}

impl Process {
    /// Whether another process runs in this memory.
    pub(crate) fn shares_memory(&self) -> bool {
        let mut children = self.children.0.values();
        children.any(|child| child.memory == ChildMemory::Shared)
    }

    /// Forgets a child, which has ended or was let go.
    pub(crate) fn forget_child(&mut self, tid: Tid) {
        self.children.0.remove(&tid);
        for thread in self.threads.values_mut() {
            thread.vfork_child.take_if(|child| *child == tid);
        }
    }

    /// Whether a child that executed an illegal instruction may have met a trap while it came or
    /// went (see `arch::TEXT_MAY_CHANGE`): nothing halts children for that. It executes the
    /// instruction again, and what is illegal is illegal the second time, too.
    pub(crate) fn is_misread(&mut self, tid: Tid) -> bool {
        let fault = ptrace::signal_info(tid).is_ok_and(|info| info.is_fault());
        let pc = Running::new(tid).stopped(At::Signal).pc().ok();
        let child = self.children.0.get_mut(&tid).filter(|_| fault);
        child.is_some_and(|child| pc.is_some() && std::mem::replace(&mut child.misread, pc) != pc)
    }
}
