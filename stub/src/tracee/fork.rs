//! Processes that the traced one creates and that the client debugs too, and memory that two
//! processes share (vfork(2)).

use std::collections::HashMap;

use crate::breakpoint::patch::Patch;
use crate::breakpoint::table::Breakpoints;
use crate::ptrace::action::Action;
use crate::ptrace::process::Process;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::Cause;
use crate::ptrace::thread::{At, Pending, Thread};
use crate::subscription::role::Role;
use crate::sys::Tid;
use crate::sys::memory::Memory;
use crate::sys::wait::Status;

use super::Tracee;
use super::children::clean;
use super::started_programs::ForkedProcesses;

/// Work that forks have left to do.
#[derive(Default)]
pub(super) struct Forks {
    /// Processes that it has created and that the client is going to debug.
    pub(super) made: Vec<Tracee>,
    /// If it runs in its creator's memory: the creator, and that memory.
    pub(super) borrowed: Option<(Tid, Memory)>,
    /// The client's breakpoints in borrowed memory, after this process has left it.
    pub(super) left_behind: Option<(Tid, Memory, Breakpoints)>,
    /// The patches in the memory of each child that has a copy of this process's memory.
    pub(super) copies: HashMap<Tid, Vec<(u64, Patch)>>,
    /// Forked processes whose program is not known yet.
    pub(super) forked: ForkedProcesses,
}

impl Tracee {
    /// True if a fork stops the program. A client that reads of new processes in its thread log
    /// needs no stop.
    fn stops_at_fork(&self) -> bool {
        self.stop_policy.forks && !self.subscriptions.has_log(Role::Control)
    }

    /// True if the beginning and the end of a vfork stop the program.
    pub(super) fn stops_at_vfork(&self) -> bool {
        self.stop_policy.vforks && !self.subscriptions.has_log(Role::Control)
    }

    /// Starts debugging a new process, if the client wants that. True if it does.
    pub(super) fn make_process(&mut self, parent: Tid, new: Tid, how: Status) -> bool {
        let (wanted, shared) = match how {
            Status::Fork => (self.stops_at_fork(), false),
            // The traps and jumps of tracepoints in one memory can belong to one process only.
            Status::VFork => (
                self.stops_at_vfork()
                    && !self.breakpoints.has_probes()
                    && self.tracepoints.fast.jump_pads.is_empty(),
                true,
            ),
            _ => (false, false),
        };
        if !wanted {
            return false;
        }
        let first = self.process.report_of(new);
        let Ok(memory) = Memory::open(new) else {
            return false;
        };
        if first.is_none_or(Status::is_end) {
            return false;
        }
        let mut made = self.debug_child(new, memory);
        if shared {
            let pid = self.process.pid();
            made.forks.borrowed = Memory::open(pid).ok().map(|own| (pid, own));
            made.breakpoints = self.breakpoints.of_the_client();
        } else {
            clean(new, &self.patches());
            made.breakpoints = self.breakpoints.planted_anew(&made.process.memory);
        }
        self.forks.made.push(made);
        if shared && let Some(thread) = self.process.threads.get_mut(&parent) {
            thread.vfork_child = Some(new);
            thread.lends_memory = true;
        }
        let cause = if shared {
            Cause::VFork(new)
        } else {
            Cause::Fork(new)
        };
        self.process.report(parent, Pending::Family(cause));
        true
    }

    /// The new process, held at its first stop.
    fn debug_child(&self, pid: Tid, memory: Memory) -> Tracee {
        let reports = self.process.reports.clone();
        let mut process = Process::new(pid, self.process.attached, memory, reports);
        process.threads.insert(pid, Thread::new(pid, Action::Hold));
        process.mark_stopped(pid, At::Event);
        process.set_exit_stop(pid);
        process.resumed = self.process.resumed;
        if self.process.run.is_non_stop() {
            process.run.set(RunState::NonStop);
        }
        process.mark_shown(pid);
        let mut made = Tracee::new(process);
        made.stop_policy = self.stop_policy.clone();
        made
    }

    /// Processes that it has created and that the client does not know of yet.
    pub(super) fn unknown(&mut self) -> Vec<Tid> {
        let made = |pending: &Pending| match pending {
            Pending::Family(Cause::Fork(child) | Cause::VFork(child)) => Some(*child),
            _ => None,
        };
        let threads = self.process.threads.values();
        let pending = threads.flat_map(|thread| &thread.pending);
        pending.filter_map(made).collect()
    }

    /// True if this child runs in the memory of this process.
    pub(super) fn lends_to(&self, child: Tid) -> bool {
        let lends = |thread: &Thread| thread.lends_memory && thread.vfork_child == Some(child);
        self.process.threads.values().any(lends)
    }

    /// Ends the debugging of a process that runs in this memory. It continues among our traps.
    pub(super) fn take_back(&mut self, mut child: Tracee) {
        let pid = child.process.pid();
        for (at, patch) in child.breakpoints.patches() {
            if !self.breakpoints.trapped(at) {
                patch.lift(&self.process.memory, at);
            }
        }
        for thread in self.process.threads.values_mut() {
            thread.lends_memory &= thread.vfork_child != Some(pid);
        }
        if let Some(thread) = child.process.threads.get_mut(&pid) {
            self.adopt_shared(pid, thread);
        }
    }

    /// Leaves borrowed memory. The client's breakpoints stay there, because they are for both
    /// processes.
    pub(super) fn leave_memory(&mut self) {
        if let Some((owner, memory)) = self.forks.borrowed.take() {
            let planted = std::mem::take(&mut self.breakpoints);
            self.forks.left_behind = Some((owner, memory, planted));
        }
    }

    /// Halts a process that is going because another one has stopped. Its own reports are kept.
    pub(super) fn halt_for_another(&mut self) {
        if self.process.is_going() && !self.process.run.is_non_stop() {
            self.halt();
            self.process.run.set(RunState::Halted);
        }
    }
}
