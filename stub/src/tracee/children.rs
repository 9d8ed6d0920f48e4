//! Processes that the traced one makes.
//!
//! They are not the client's business: they run on as if nobody watched. But a forked child has a
//! copy of our traps, which must come out before it runs, and a vforked one runs in the
//! very memory the traps are in, so that it stays traced until it executes something else, and is taken
//! past the traps it meets.

use crate::arch;
use crate::breakpoint::patch::Patch;
use crate::sys::Tid;
use crate::sys::memory::Memory;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::Tracee;
use crate::ptrace::thread::{At, Motion, Running, State, Stopped, Thread};

/// A process made by the traced one, or by such a process.
pub(crate) struct Child {
    kind: Kind,
    /// At a trap in shared memory, to be taken past it.
    at_trap: Option<(Stopped, u64)>,
    /// Where it last executed what was taken for an illegal instruction.
    misread: Option<u64>,
}

enum Kind {
    /// Its memory is a copy, with these patches in it.
    Copy(Vec<(u64, Patch)>),
    /// Its memory is the traced process's.
    Shared,
}

impl Tracee {
    /// A thread reported that it made `new`.
    pub(super) fn adopt(&mut self, parent: Tid, new: Tid, how: Status) {
        if how == Status::Clone && ptrace::is_thread_of(self.pid(), new) {
            for log in self.subscriptions.logs() {
                log.created(new, parent);
            }
            self.adopt_thread(parent, new);
            return;
        }
        // A clone that is neither thread nor vfork may or may not share memory.
        let shared = how == Status::VFork
            || ptrace::same_memory(self.pid(), new).unwrap_or(how == Status::Clone);
        self.process_started(parent, new, !shared);
        if self.make_process(parent, new, how) {
            return;
        }
        if how == Status::VFork
            && let Some(thread) = self.threads.get_mut(&parent)
        {
            thread.vfork_child = Some(new);
        }
        self.adopt_child(new, shared);
    }

    fn adopt_child(&mut self, new: Tid, shared: bool) {
        let kind = if shared {
            self.unregister_all();
            Kind::Shared
        } else {
            Kind::Copy(self.patches())
        };
        let child = Child {
            kind,
            at_trap: None,
            misread: None,
        };
        self.children.insert(new, child);
        while let Some(status) = self.wait_queue.take(new) {
            self.handle_child(new, status);
        }
    }

    /// A process that was debugged, and that runs in this memory, is a child like others from now on.
    pub(super) fn adopt_shared(&mut self, tid: Tid, thread: &mut Thread) {
        let child = Child {
            kind: Kind::Shared,
            at_trap: None,
            misread: None,
        };
        self.children.insert(tid, child);
        release(tid, thread);
    }

    /// All that is planted in the memory now.
    pub(super) fn patches(&self) -> Vec<(u64, Patch)> {
        let all = self.breakpoints.patches().chain(self.displaced.patches());
        let all = all.chain(self.jump_pads.patches());
        all.map(|(at, patch)| (at, patch.clone())).collect()
    }

    /// A report about a child.
    pub(super) fn handle_child(&mut self, tid: Tid, status: Status) {
        let Some(child) = self.children.get_mut(&tid) else {
            return;
        };
        match status {
            Status::Exited(_) | Status::Killed(_) => return self.forget_child(tid),
            Status::Exec => {
                self.process_executed(tid);
                let _ = ptrace::detach(tid, 0);
                return self.forget_child(tid);
            }
            _ => {}
        }
        if let Kind::Copy(patches) = &child.kind {
            clean(tid, patches);
            let signal = if let Status::Signal(signal) = status {
                signal
            } else {
                0
            };
            let _ = ptrace::detach(tid, signal);
            return self.forget_child(tid);
        }
        let _ = match status {
            Status::Signal(libc::SIGTRAP) => return self.child_trap(tid),
            Status::Signal(libc::SIGILL) if self.is_misread(tid) => ptrace::cont(tid, 0),
            Status::Signal(signal) => ptrace::cont(tid, signal),
            Status::Held(signal) if signal != libc::SIGTRAP => ptrace::listen(tid),
            Status::Clone | Status::Fork | Status::VFork => {
                if let Ok(new) = ptrace::event_message(tid) {
                    let new = Tid(new as i32);
                    let shared =
                        status == Status::VFork || ptrace::same_memory(tid, new).unwrap_or(false);
                    self.adopt_child(new, shared);
                }
                ptrace::cont(tid, 0)
            }
            _ => ptrace::cont(tid, 0),
        };
    }

    fn forget_child(&mut self, tid: Tid) {
        self.children.remove(&tid);
        for thread in self.threads.values_mut() {
            thread.vfork_child.take_if(|child| *child == tid);
        }
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
            // A trap that has been removed meanwhile is not there any more.
            let removed = !planted && !self.is_trap(at);
            if planted || removed {
                let _ = arch::TRAP_ADVANCE == 0 || stopped.set_pc(at).is_ok();
                if !planted {
                    let _ = ptrace::cont(tid, 0);
                } else if let Some(child) = self.children.get_mut(&tid) {
                    child.at_trap = Some((stopped, at));
                }
                return;
            }
        }
        let _ = ptrace::cont(tid, libc::SIGTRAP);
    }

    /// Whether a child, which nobody halts when traps come and go, may have met one in that moment (see `arch::TEXT_MAY_CHANGE`). It
    /// executes the instruction again: what is illegal is so the second time, too.
    fn is_misread(&mut self, tid: Tid) -> bool {
        let fault = ptrace::signal_info(tid).is_ok_and(|info| info.is_fault());
        let pc = Running::new(tid).stopped(At::Signal).pc().ok();
        let child = self.children.get_mut(&tid).filter(|_| fault);
        child.is_some_and(|child| pc.is_some() && std::mem::replace(&mut child.misread, pc) != pc)
    }

    /// A child's hits are nobody's: it goes on where a collector would have let it.
    fn child_in_collector(&self, stopped: &mut Stopped) -> bool {
        let mut back = || {
            let pc = stopped.pc().ok()?;
            let mut general = stopped.general().ok()?.to_vec();
            self.jump_pads.back(&self.memory, pc, &mut general)?;
            let copy = self.jump_pads.copy_around(pc)?;
            stopped.set_general(&general).ok()?;
            stopped.set_pc(copy).ok()
        };
        !self.jump_pads.is_unused() && back().is_some()
    }

    pub(super) fn is_trap(&self, at: u64) -> bool {
        let mut code = [0; 4];
        let known = self.memory.read(at, &mut code).unwrap_or(0);
        (1..=4)
            .filter_map(arch::trap)
            .any(|trap| code[..known].starts_with(trap))
    }

    /// Whether another process runs in this memory.
    pub(super) fn shares_memory(&self) -> bool {
        let mut kinds = self.children.values().map(|child| &child.kind);
        kinds.any(|kind| matches!(kind, Kind::Shared))
    }

    /// Whether a child waits to be taken past a trap.
    pub(super) fn children_wait(&self) -> bool {
        self.children.values().any(|child| child.at_trap.is_some())
    }

    /// Takes the children past their traps. All threads that can run must be stopped.
    pub(super) fn step_children(&mut self) {
        let tids: Vec<Tid> = self.children.keys().copied().collect();
        for tid in tids {
            let waiting = self.children.get_mut(&tid).and_then(|c| c.at_trap.take());
            let Some((stopped, at)) = waiting else {
                continue;
            };
            if self.breakpoints.trapped(at) {
                // Borrow the machinery for threads; what it leaves queued is the child's own.
                let mut thread = Thread::new(tid, super::Action::Hold);
                thread.state = State::Stopped(stopped);
                let child = self.children.remove(&tid);
                self.threads.insert(tid, thread);
                self.step_over(tid, at);
                let thread = self.threads.remove(&tid);
                if let (Some(child), Some(mut thread)) = (child, thread) {
                    if matches!(thread.state, State::Exiting) {
                        continue;
                    }
                    self.children.insert(tid, child);
                    release(tid, &mut thread);
                }
            } else {
                let _ = stopped.resume(Motion::Continue, 0);
            }
        }
    }

    /// Lets all children go for good. No trap may be planted any more; `planted` is what was.
    pub(super) fn release_children(&mut self, planted: &[(u64, Patch)]) {
        self.release_early(planted);
        while let Some(tid) = self.children.keys().next().copied() {
            let waits = self.children.get(&tid).is_some_and(|c| c.at_trap.is_some());
            if waits {
                let _ = ptrace::detach(tid, 0);
                self.forget_child(tid);
                continue;
            }
            let shared = self
                .children
                .get(&tid)
                .is_some_and(|child| matches!(child.kind, Kind::Shared));
            if shared {
                let _ = ptrace::interrupt(tid);
            }
            match self.report_of(tid) {
                Some(Status::Held(_)) if shared && !ptrace::trap_is_pending(tid) => {
                    let _ = ptrace::detach(tid, 0);
                    self.forget_child(tid);
                }
                Some(status) => self.handle_child(tid, status),
                _ => self.forget_child(tid),
            }
        }
    }

    /// Lets go what stopped for the first time and whose parent ended before saying what it is: a copy of memory with these
    /// patches in it.
    pub(super) fn release_early(&mut self, planted: &[(u64, Patch)]) {
        if !self.wait_queue.is_own() {
            // It may be another process's that is debugged.
            return;
        }
        for (tid, _) in self.wait_queue.take_others(|tid| self.knows(tid)) {
            clean(tid, planted);
            let _ = ptrace::detach(tid, 0);
        }
    }
}

/// Lets a child run on after its step, with the signals that came meanwhile.
fn release(tid: Tid, thread: &mut Thread) {
    for pending in std::mem::take(&mut thread.pending) {
        if let crate::ptrace::thread::Pending::Signal(info) = pending {
            let _ = ptrace::queue_signal(tid, tid, &info);
        }
    }
    thread.go(Motion::Continue, 0);
}

/// Takes our patches out of a copy of the memory they are in.
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
