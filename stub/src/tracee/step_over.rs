//! Takes a thread past a trap that stays inserted, while all others run.
//!
//! There are three ways. The stub *emulates* the instruction if functions begin with it or if it
//! depends on its address: nothing in the program changes. Otherwise the thread executes a copy in
//! a *slot*, which jumps back. An instruction that allows neither is *stepped in place*, with the
//! trap removed and every thread stopped. These are system calls (they may wait for another
//! thread), the program's own traps, far calls, and the few that use their address in other ways
//! (x86-64: `xbegin`; AArch64: SIMD literals, `blraa`; ARM: SIMD and doubleword literals, stores of
//! the pc, IT blocks).
//!
//! The stub never reports a thread inside a slot. Whenever a thread stops there, the stub moves it
//! to the place where it would be without the slot. If the instruction has not been executed, that
//! place is the trap, whose hit has been handled. The next time the thread traps there with the
//! same stack pointer, the stub just takes it past the trap.

use crate::arch;
use crate::breakpoint::displaced::SlotExit;
use crate::sys::Tid;

use super::Tracee;
use super::single_step::StepOverRequest;
use crate::ptrace::action::Action;
use crate::ptrace::thread::{At, Thread};

/// Maximum number of hits remembered per thread. Signal handlers never nest this deep.
const MAX_REMEMBERED: usize = 16;
/// Length of the longest instruction, in bytes.
const MAX_INSTRUCTION: usize = 16;

impl Tracee {
    /// Takes a thread past a trap whose hit has been handled.
    pub(super) fn pass(&mut self, tid: Tid, at: u64) {
        let action = self.process.threads.get(&tid).map(|thread| thread.action);
        if !self.process.run.may_start() || action.is_none_or(|action| action == Action::Hold) {
            self.remember_hit(tid, at);
            return;
        }
        if self.tracepoints.fast.jump_pads.is_planted(at) {
            if !self.displace(tid, at) {
                // A signal handler comes first. When it returns, the collector records this hit
                // again, and the stub drops the second record.
                self.remember_hit(tid, at);
            }
            self.continue_unreported(tid);
        } else if self.emulate(tid, at) {
            self.stepped(tid);
            if !self.process.run.has_event() {
                self.continue_unreported(tid);
            }
        } else if self.displace(tid, at) {
            self.continue_unreported(tid);
        } else {
            self.step_queue.requests.push(StepOverRequest {
                tid,
                at,
                planted: true,
            });
        }
    }

    /// The bytes of the instruction at `at`, and some bytes after it.
    pub(super) fn code(&self, at: u64) -> Vec<u8> {
        let mut code = vec![0; MAX_INSTRUCTION];
        let known = self.read_memory(at, &mut code).unwrap_or(0);
        code.truncate(known);
        code
    }

    /// Emulates the instruction at `at`, where the thread is. False if that is not possible.
    pub(super) fn emulate(&mut self, tid: Tid, at: u64) -> bool {
        // Emulation triggers no debug registers.
        if !self.process.watches().is_empty() {
            return false;
        }
        let code = self.code(at);
        self.live_hit(tid)
            .is_some_and(|(hit, _)| hit.stopped.emulate(&code, &hit.memory))
    }

    /// Prepares a thread at the trap at `at` to resume through a slot. False if that is not
    /// possible.
    pub(super) fn displace(&mut self, tid: Tid, at: u64) -> bool {
        let jump = self.tracepoints.fast.jump_pads.copy(at);
        let kind = self.breakpoints.kind(at);
        let kind = kind.filter(|_| self.forks.borrowed.is_none());
        if kind.is_none() && jump.is_none() {
            return false;
        }
        // An exclusive load and its store count as one step, but not in a slot.
        if self
            .process
            .threads
            .get(&tid)
            .is_some_and(Thread::records_steps)
            && !(arch::CAN_STEP && self.next_places(tid).is_empty())
        {
            return false;
        }
        let code = self.code(at);
        let (process, memory) = (self.process.any_task(), &self.process.memory);
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return false;
        };
        // A signal handler would return into the slot, and a group-stop may last.
        let goes = matches!(thread.action, Action::Continue(_)) && thread.deliver.is_empty();
        let Some(stopped) = thread
            .stopped()
            .filter(|stopped| stopped.at() != At::GroupStop)
        else {
            return false;
        };
        let may = stopped.general().is_ok_and(|general| {
            arch::may_displace(general) && !arch::is_system_call(&code, general)
        });
        if !goes || !may {
            return false;
        }
        thread.through = jump.or_else(|| {
            let kind = kind?;
            self.displaced.slot(process, memory, at, kind, &code)
        });
        thread.through.is_some()
    }

    /// Moves a thread that has stopped in a slot to where it would be without the slot.
    pub(super) fn leave_slot(&mut self, tid: Tid) {
        if self.displaced.is_empty() {
            return;
        }
        let stopped = self.process.threads.get_mut(&tid).and_then(Thread::stopped);
        let Some(stopped) = stopped else { return };
        let pc = stopped.pc().ok();
        let left = pc.and_then(|pc| self.displaced.left(&self.process.memory, pc));
        let at = match left {
            Some(SlotExit::Before(at) | SlotExit::After(at)) => at,
            None => return,
        };
        let _ = stopped.set_pc(at);
        if left == Some(SlotExit::Before(at)) {
            self.remember_hit(tid, at);
        }
    }

    /// Remembers that the thread will trap at `at` again for the same execution of the instruction.
    pub(super) fn remember_hit(&mut self, tid: Tid, at: u64) {
        if let Some(thread) = self.process.threads.get_mut(&tid)
            && let Some(Ok(sp)) = thread.stopped().map(|stopped| stopped.sp())
        {
            if thread.dealt_with.len() >= MAX_REMEMBERED {
                thread.dealt_with.remove(0);
            }
            thread.dealt_with.push((at, sp));
        }
    }

    /// True if the thread, which is at `at`, has now trapped there a second time for the same
    /// execution.
    pub(super) fn forget_hit(&mut self, tid: Tid, at: u64) -> bool {
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return false;
        };
        if thread.dealt_with.is_empty() {
            return false;
        }
        let Some(Ok(sp)) = thread.stopped().map(|stopped| stopped.sp()) else {
            return false;
        };
        let known = thread.dealt_with.iter().rposition(|hit| *hit == (at, sp));
        known.map(|index| thread.dealt_with.remove(index)).is_some()
    }
}
