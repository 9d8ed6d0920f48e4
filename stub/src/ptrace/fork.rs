//! Processes that the traced process creates and that are not debugged.
//!
//! A child with a copy of the memory is detached once its copy contains no traps. A child that
//! shares the memory (vfork(2)) stays traced until it executes a file, because it may hit traps.

use std::collections::HashMap;

use crate::sys::Tid;
use crate::sys::ptrace;

use super::process::Process;
use super::thread::{At, Running, Stopped};

/// The memory in which a child runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChildMemory {
    /// A copy of the process's memory.
    Copy,
    /// The memory of the process itself.
    Shared,
}

/// A process created by the traced one, directly or indirectly.
pub(crate) struct Child {
    memory: ChildMemory,
    /// The child is stopped at a trap in shared memory, at this address.
    at_trap: Option<(Stopped, u64)>,
    /// The program counter at the child's last illegal instruction, which may have been a trap that
    /// was half written.
    misread: Option<u64>,
}

/// The children of a process, by their ids.
#[derive(Default)]
pub(crate) struct Children(HashMap<Tid, Child>);

impl Children {
    /// Adds a child.
    pub(crate) fn add(&mut self, tid: Tid, memory: ChildMemory) {
        let child = Child {
            memory,
            at_trap: None,
            misread: None,
        };
        self.0.insert(tid, child);
    }

    /// Removes a child, for [`put_back`](Self::put_back).
    pub(crate) fn take(&mut self, tid: Tid) -> Option<Child> {
        self.0.remove(&tid)
    }

    /// Adds a child that [`take`](Self::take) removed.
    pub(crate) fn put_back(&mut self, tid: Tid, child: Child) {
        self.0.insert(tid, child);
    }

    /// True if this is the id of a child.
    pub(crate) fn contains(&self, tid: Tid) -> bool {
        self.0.contains_key(&tid)
    }

    /// The ids of all children.
    pub(crate) fn tids(&self) -> Vec<Tid> {
        self.0.keys().copied().collect()
    }

    /// The id of any child.
    pub(crate) fn any_tid(&self) -> Option<Tid> {
        self.0.keys().next().copied()
    }

    /// The memory in which a child runs.
    pub(crate) fn memory(&self, tid: Tid) -> Option<ChildMemory> {
        self.0.get(&tid).map(|child| child.memory)
    }

    /// True if the child is stopped at a trap.
    pub(crate) fn is_at_trap(&self, tid: Tid) -> bool {
        let child = self.0.get(&tid);
        child.is_some_and(|child| child.at_trap.is_some())
    }

    /// True if any child is stopped at a trap.
    pub(crate) fn any_at_trap(&self) -> bool {
        self.0.values().any(|child| child.at_trap.is_some())
    }

    /// Records that a child has stopped at the trap at this address.
    pub(crate) fn set_at_trap(&mut self, tid: Tid, stopped: Stopped, at: u64) {
        if let Some(child) = self.0.get_mut(&tid) {
            child.at_trap = Some((stopped, at));
        }
    }

    /// Ends a child's wait at a trap, and returns its state and the trap's address.
    pub(crate) fn take_at_trap(&mut self, tid: Tid) -> Option<(Stopped, u64)> {
        self.0.get_mut(&tid)?.at_trap.take()
    }
}

impl Process {
    /// True if another process runs in this memory.
    pub(crate) fn shares_memory(&self) -> bool {
        let mut children = self.children.0.values();
        children.any(|child| child.memory == ChildMemory::Shared)
    }

    /// Removes a child that has ended or was detached.
    pub(crate) fn forget_child(&mut self, tid: Tid) {
        self.children.0.remove(&tid);
        for thread in self.threads.values_mut() {
            thread.vfork_child.take_if(|child| *child == tid);
        }
    }

    /// True if a child's illegal instruction may have been a trap that was being inserted or
    /// removed (see `arch::TEXT_MAY_CHANGE`), because children are not stopped for that. The child
    /// then executes the instruction again. A truly illegal instruction fails the second time, too.
    pub(crate) fn is_misread(&mut self, tid: Tid) -> bool {
        let fault = ptrace::signal_info(tid).is_ok_and(|info| info.is_fault());
        let pc = Running::new(tid).stopped(At::Signal).pc().ok();
        let child = self.children.0.get_mut(&tid).filter(|_| fault);
        child.is_some_and(|child| pc.is_some() && std::mem::replace(&mut child.misread, pc) != pc)
    }
}
