//! Getting a thread past a trap that stays, while all others run.
//!
//! Three ways. The instruction is *emulated*, if functions begin with it or if its place matters to
//! it: nothing in the program changes. Else a copy of it is executed in a *slot*, which jumps back.
//! What can be neither is *stepped in its place*, with the trap removed and every thread stopped:
//! system calls (they may wait for another thread), traps of the program's own, far calls and the
//! few that remember their address in other ways (x86-64: `xbegin`; AArch64: SIMD literals,
//! `blraa`; ARM: SIMD and doubleword literals, stores of the pc, IT blocks).
//!
//! A thread in a slot is never reported there: whenever it stops, it is put where it would be
//! without us. If it has not executed the instruction yet, that is at the trap once more, and what
//! the trap led to has been dealt with: the next time it traps there with the same stack pointer,
//! it is only taken on.

use crate::arch;
use crate::breakpoint::displaced::SlotExit;
use crate::sys::Tid;

use super::Tracee;
use super::single_step::StepOverRequest;
use crate::ptrace::action::Action;
use crate::ptrace::thread::{At, Thread};

/// Hits remembered of one thread; more than any nesting of signal handlers.
const REMEMBERED: usize = 16;
/// No instruction is longer.
const LONGEST: usize = 16;

impl Tracee {
    /// Takes a thread on that stands at a trap whose hit has been dealt with.
    pub(super) fn pass(&mut self, tid: Tid, at: u64) {
        let action = self.process.threads.get(&tid).map(|thread| thread.action);
        if !self.process.run.may_start() || action.is_none_or(|action| action == Action::Hold) {
            self.remember_hit(tid, at);
            return;
        }
        if self.tracepoints.fast.jump_pads.is_planted(at) {
            if !self.displace(tid, at) {
                // A handler comes first; when it returns the collector notes the same hit again,
                // and that is dropped.
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

    /// The bytes of the instruction at `at`, and some more.
    pub(super) fn code(&self, at: u64) -> Vec<u8> {
        let mut code = vec![0; LONGEST];
        let known = self.read_memory(at, &mut code).unwrap_or(0);
        code.truncate(known);
        code
    }

    /// Executes the instruction at `at`, where the thread stands, on its registers.
    pub(super) fn emulate(&mut self, tid: Tid, at: u64) -> bool {
        // What is emulated triggers no debug register.
        if !self.process.watches().is_empty() {
            return false;
        }
        let code = self.code(at);
        self.live_hit(tid)
            .is_some_and(|(hit, _)| hit.stopped.emulate(&code, &hit.memory))
    }

    /// Has a thread that stands at the trap at `at` go on by a slot, when it goes. `false`: it
    /// cannot.
    pub(super) fn displace(&mut self, tid: Tid, at: u64) -> bool {
        let jump = self.tracepoints.fast.jump_pads.copy(at);
        let kind = self.breakpoints.kind(at);
        let kind = kind.filter(|_| self.forks.borrowed.is_none());
        if kind.is_none() && jump.is_none() {
            return false;
        }
        // A sequence that loads and stores exclusively is one step, which it is not in a slot.
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
        // A handler would return into the slot; a group-stop may last.
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

    /// Puts a thread that has stopped in a slot where it would be without it.
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

    /// The thread will trap at `at` once more for the same execution of the instruction.
    pub(super) fn remember_hit(&mut self, tid: Tid, at: u64) {
        if let Some(thread) = self.process.threads.get_mut(&tid)
            && let Some(Ok(sp)) = thread.stopped().map(|stopped| stopped.sp())
        {
            if thread.dealt_with.len() >= REMEMBERED {
                thread.dealt_with.remove(0);
            }
            thread.dealt_with.push((at, sp));
        }
    }

    /// Whether the thread, which stands at `at`, was to trap there once more. Now it has.
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
