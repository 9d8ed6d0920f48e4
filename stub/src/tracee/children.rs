//! Processes that the traced one creates and that the client does not debug.
//!
//! They run as if they were not traced. But a forked child has a copy of our traps, which the stub
//! removes before the child runs. A vforked child runs in the memory that has the traps. It stays
//! traced until it executes a file, and the stub takes it past the traps it hits.

use crate::arch;
use crate::breakpoint::patch::Patch;
use crate::sys::Tid;
use crate::sys::memory::Memory;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::fork::ChildMemory;
use crate::ptrace::thread::{At, Motion, Pending, Running, State, Stopped, Thread};

impl Tracee {
    /// Handles a thread's report that it created `new`.
    pub(super) fn adopt(&mut self, parent: Tid, new: Tid, how: Status) {
        if how == Status::Clone && ptrace::is_thread_of(self.process.pid(), new) {
            for log in self.subscriptions.logs() {
                log.created(new, parent);
            }
            self.adopt_thread(parent, new);
            return;
        }
        // A clone that is neither a thread nor a vfork may or may not share memory.
        let shared = how == Status::VFork
            || ptrace::same_memory(self.process.pid(), new).unwrap_or(how == Status::Clone);
        self.process_started(parent, new, !shared);
        if self.make_process(parent, new, how) {
            return;
        }
        if how == Status::VFork
            && let Some(thread) = self.process.threads.get_mut(&parent)
        {
            thread.vfork_child = Some(new);
        }
        self.adopt_child(new, shared);
    }

    fn adopt_child(&mut self, new: Tid, shared: bool) {
        let memory = if shared {
            let fast = &mut self.tracepoints.fast;
            fast.unregister_all(&self.process.memory);
            ChildMemory::Shared
        } else {
            self.forks.copies.insert(new, self.patches());
            ChildMemory::Copy
        };
        self.process.children.add(new, memory);
    }

    /// Handles what the kernel has reported about a child before its creator reported it.
    ///
    /// Call it after the creator was resumed. If the child ends while its creator is stopped, the
    /// kernel sends SIGCHLD to another thread, whose system call it interrupts. Only while all
    /// threads are being stopped, the creator stays stopped. Their calls are then interrupted
    /// anyway.
    pub(super) fn handle_waiting_reports(&mut self, child: Tid) {
        while self.process.children.contains(child)
            && let Some(status) = self.process.reports.take(child)
        {
            self.handle_child(child, status);
        }
    }

    /// Adds a thread that another one has created. The kernel may have reported its first stop
    /// already.
    fn adopt_thread(&mut self, creator: Tid, tid: Tid) {
        self.process.add_thread(creator, tid);
        while let Some(status) = self.process.reports.take(tid) {
            self.handle(tid, status);
        }
    }

    /// Turns a debugged process that runs in this memory into a child.
    pub(super) fn adopt_shared(&mut self, tid: Tid, thread: &mut Thread) {
        self.process.children.add(tid, ChildMemory::Shared);
        release(tid, thread);
    }

    /// All patches in the memory.
    pub(super) fn patches(&self) -> Vec<(u64, Patch)> {
        let all = self.breakpoints.patches().chain(self.displaced.patches());
        let all = all.chain(self.tracepoints.fast.jump_pads.patches());
        all.map(|(at, patch)| (at, patch.clone())).collect()
    }

    /// Handles a report about a child.
    pub(super) fn handle_child(&mut self, tid: Tid, status: Status) {
        let Some(memory) = self.process.children.memory(tid) else {
            return;
        };
        match status {
            end if end.is_end() => return self.forget_child(tid),
            Status::Exec => {
                self.process_executed(tid);
                let _ = ptrace::detach(tid, 0);
                return self.forget_child(tid);
            }
            _ => {}
        }
        if memory == ChildMemory::Copy {
            let patches = self.forks.copies.get(&tid);
            clean(tid, patches.map_or(&[], Vec::as_slice));
            let signal = match status {
                Status::Signal(signal) => signal,
                _ => 0,
            };
            let _ = ptrace::detach(tid, signal);
            return self.forget_child(tid);
        }
        let _ = match status {
            Status::Signal(libc::SIGTRAP) => return self.child_trap(tid),
            Status::Signal(libc::SIGILL) if self.process.is_misread(tid) => ptrace::cont(tid, 0),
            Status::Signal(signal) => ptrace::cont(tid, signal),
            Status::Held(signal) if signal != libc::SIGTRAP => ptrace::listen(tid),
            Status::Clone | Status::Fork | Status::VFork => {
                if let Ok(new) = ptrace::event_message(tid) {
                    let new = Tid(new as i32);
                    let shared =
                        status == Status::VFork || ptrace::same_memory(tid, new).unwrap_or(false);
                    self.adopt_child(new, shared);
                    let continued = ptrace::cont(tid, 0);
                    self.handle_waiting_reports(new);
                    continued
                } else {
                    ptrace::cont(tid, 0)
                }
            }
            _ => ptrace::cont(tid, 0),
        };
    }

    fn forget_child(&mut self, tid: Tid) {
        self.forks.copies.remove(&tid);
        self.process.forget_child(tid);
    }

    fn child_trap(&mut self, tid: Tid) {
        let mut stopped = Running::new(tid).stopped(At::Signal);
        let code = ptrace::signal_info(tid).map_or(0, |info| info.code());
        if arch::is_trap_report(code) && self.child_in_collector(&mut stopped) {
            let _ = ptrace::cont(tid, 0);
            return;
        }
        if arch::is_trap_report(code)
            && let Ok(pc) = stopped.pc()
        {
            let at = pc.wrapping_sub(arch::TRAP_ADVANCE);
            let planted = self.breakpoints.trapped(at);
            // The trap was removed before its report.
            let removed = !planted && !self.is_trap(at);
            if planted || removed {
                let _ = arch::TRAP_ADVANCE == 0 || stopped.set_pc(at).is_ok();
                // Stopping all threads would interrupt their system calls.
                let is_past = !planted || stopped.emulate(&self.code(at), &self.original_memory());
                if is_past {
                    let _ = ptrace::cont(tid, 0);
                } else {
                    self.process.children.set_at_trap(tid, stopped, at);
                }
                return;
            }
        }
        let _ = ptrace::cont(tid, libc::SIGTRAP);
    }

    /// Moves a child out of a collector, which then records nothing. True if it was in one.
    fn child_in_collector(&self, stopped: &mut Stopped) -> bool {
        let mut back = || {
            let pc = stopped.pc().ok()?;
            let mut general = stopped.general().ok()?.to_vec();
            self.tracepoints
                .fast
                .jump_pads
                .back(&self.process.memory, pc, &mut general)?;
            let copy = self.tracepoints.fast.jump_pads.copy_around(pc)?;
            stopped.set_general(&general).ok()?;
            stopped.set_pc(copy).ok()
        };
        !self.tracepoints.fast.jump_pads.is_unused() && back().is_some()
    }

    pub(super) fn is_trap(&self, at: u64) -> bool {
        let mut code = [0; 4];
        let known = self.process.memory.read(at, &mut code).unwrap_or(0);
        (1..=4)
            .filter_map(arch::trap)
            .any(|trap| code[..known].starts_with(trap))
    }

    /// Takes the children past their traps. All threads that can run must be stopped.
    pub(super) fn step_children(&mut self) {
        for tid in self.process.children.tids() {
            let Some((stopped, at)) = self.process.children.take_at_trap(tid) else {
                continue;
            };
            if self.breakpoints.trapped(at) {
                // For this step the child acts as a thread. Signals queued meanwhile are its own.
                let mut thread = Thread::new(tid, Action::Hold);
                thread.state = State::Stopped(stopped);
                let child = self.process.children.take(tid);
                self.process.threads.insert(tid, thread);
                self.step_over(tid, at);
                let thread = self.process.threads.remove(&tid);
                if let (Some(child), Some(mut thread)) = (child, thread) {
                    if matches!(thread.state, State::Exiting) {
                        continue;
                    }
                    self.process.children.put_back(tid, child);
                    release(tid, &mut thread);
                }
            } else {
                let _ = stopped.resume(Motion::Continue, 0);
            }
        }
    }

    /// Detaches from all children. No trap may be in the program any more; `planted` lists the
    /// former ones.
    pub(super) fn release_children(&mut self, planted: &[(u64, Patch)]) {
        self.release_early(planted);
        while let Some(tid) = self.process.children.any_tid() {
            if self.process.children.is_at_trap(tid) {
                let _ = ptrace::detach(tid, 0);
                self.forget_child(tid);
                continue;
            }
            let shared = self.process.children.memory(tid) == Some(ChildMemory::Shared);
            if shared {
                let _ = ptrace::interrupt(tid);
            }
            match self.process.report_of(tid) {
                Some(Status::Held(_)) if shared && !ptrace::trap_is_pending(tid) => {
                    let _ = ptrace::detach(tid, 0);
                    self.forget_child(tid);
                }
                Some(status) => self.handle_child(tid, status),
                _ => self.forget_child(tid),
            }
        }
    }

    /// Detaches from new processes whose creator ended before it reported them. Each has a copy of
    /// the memory with the patches `planted`.
    pub(super) fn release_early(&mut self, planted: &[(u64, Patch)]) {
        if !self.process.reports.is_own() {
            // They may belong to another process that is debugged.
            return;
        }
        for (tid, _) in self
            .process
            .reports
            .take_others(|tid| self.process.knows(tid))
        {
            clean(tid, planted);
            let _ = ptrace::detach(tid, 0);
        }
    }
}

/// Lets a child continue after its step, with the signals that arrived meanwhile.
fn release(tid: Tid, thread: &mut Thread) {
    for pending in std::mem::take(&mut thread.pending) {
        if let Pending::Signal(info) = pending {
            let _ = ptrace::queue_signal(tid, tid, &info);
        }
    }
    thread.go(Motion::Continue, 0);
}

/// Removes our patches from a copy of the patched memory.
pub(super) fn clean(tid: Tid, patches: &[(u64, Patch)]) {
    if patches.is_empty() {
        return;
    }
    let Ok(memory) = Memory::open(tid) else {
        return;
    };
    for (at, patch) in patches {
        patch.lift(&memory, *at);
    }
}
