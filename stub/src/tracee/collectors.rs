//! Handles threads in collectors, and hits that collectors leave to the stub.
//!
//! The stub moves a thread that stops in a collector to the place where it would be without the
//! collector. If that place is inside the jump, the jump must be removed before the thread resumes.

use crate::arch;
use crate::arch::fast::Standing;
use crate::ptrace::action::Action;
use crate::ptrace::thread::{At, Motion, Pending, Thread};
use crate::sys::{Tid, maps, ptrace};
use crate::tracepoint::fast::Registration;

use super::Tracee;
use super::live_hit::stack_end;

impl Tracee {
    /// Moves a thread that has stopped in a collector to where it would be without the collector.
    /// `None` if it is not in one.
    pub(super) fn leave_collector(&mut self, tid: Tid, held: bool) -> Option<(u64, Standing)> {
        if self.tracepoints.fast.jump_pads.is_unused() {
            return None;
        }
        let stopped = self
            .process
            .threads
            .get_mut(&tid)
            .and_then(Thread::stopped)?;
        let pc = stopped.pc().ok()?;
        let mut general = stopped.general().ok()?.to_vec();
        let (at, position) =
            self.tracepoints
                .fast
                .jump_pads
                .back(&self.process.memory, pc, &mut general)?;
        let mut standing = position.standing;
        if held && matches!(standing, Standing::Slow | Standing::Alarmed) {
            if ptrace::trap_is_pending(tid) {
                // The trap is reported next, and handled then.
                return None;
            }
            // The trap has been reported, or the thread has not executed it.
            standing = match standing {
                Standing::Slow if arch::TRAP_ADVANCE == 0 => Standing::Before,
                _ => Standing::Dealt,
            };
        }
        stopped.set_general(&general).ok()?;
        if let Some(state) = position.claimed {
            self.process.memory.write_words(&[state], 0);
        }
        match standing {
            Standing::Dealt | Standing::Alarmed => {
                // The thread may come here again for the same execution, and the collector then
                // records the hit again. Draining now keeps this hit apart from the second one.
                self.drain_jump_pads();
                self.remember_hit(tid, at);
            }
            Standing::Inside if self.tracepoints.fast.jump_pads.is_planted(at) => {
                self.tracepoints.fast.add_inside_jump(tid, at)
            }
            _ => {}
        }
        Some((at, standing))
    }

    /// Resumes a thread that a collector has stopped to wake the stub. The thread need not wait
    /// until the stub has drained. False if it must leave its collector first.
    pub(super) fn pass_alarm(&mut self, tid: Tid) -> bool {
        let jump_pads = &self.tracepoints.fast.jump_pads;
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return false;
        };
        let goes = self.process.run.may_start()
            && thread.action != Action::Hold
            && !thread.steps()
            && thread.pending.is_empty()
            && thread.deliver.is_empty()
            && !self.subscriptions.is_held(tid);
        let Some(stopped) = thread.stopped().filter(|_| goes) else {
            return false;
        };
        let Some((pc, next)) = stopped
            .pc()
            .ok()
            .and_then(|pc| Some((pc, jump_pads.after_alarm(pc)?)))
        else {
            return false;
        };
        if !ptrace::signal_info(tid).is_ok_and(|info| info.is_fault())
            || next != pc && stopped.set_pc(next).is_err()
        {
            return false;
        }
        self.tracepoints.has_alarm = true;
        self.keep_trap_handler(tid);
        self.go(tid, Motion::Continue, 0);
        true
    }

    /// Handles the signal of a thread that has stopped in a collector and been moved out of it.
    /// True if the collector caused the signal.
    pub(super) fn collector_stop(
        &mut self,
        tid: Tid,
        signal: i32,
        at: u64,
        standing: Standing,
    ) -> bool {
        let Ok(info) = ptrace::signal_info(tid) else {
            return true;
        };
        let by_itself = info.is_fault();
        if signal == libc::SIGTRAP && by_itself {
            self.keep_trap_handler(tid);
        }
        match (signal, standing) {
            (libc::SIGTRAP, Standing::Alarmed) if by_itself => {
                self.tracepoints.has_alarm = true;
                self.continue_unreported(tid);
                true
            }
            (libc::SIGTRAP, Standing::Slow) if by_itself => {
                self.register_with_collectors(tid);
                self.slow_hit(tid, at);
                true
            }
            (_, Standing::Before) if by_itself => {
                if self.tracepoints.fast.jump_pads.faulted(at) {
                    self.schedule_placement();
                }
                self.slow_hit(tid, at);
                true
            }
            _ => false,
        }
    }

    /// Handles a hit that a collector has left to the stub.
    fn slow_hit(&mut self, tid: Tid, at: u64) {
        let again = self.forget_hit(tid, at);
        let stops = !again && self.probe_hit(tid, at);
        if stops {
            self.remember_hit(tid, at);
            self.process.report(tid, Pending::Tracepoint(at));
        } else if self.subscriptions.is_held(tid) {
            self.remember_hit(tid, at);
        } else {
            self.pass(tid, at);
        }
    }

    /// Registers a thread with the collectors.
    pub(super) fn register_with_collectors(&mut self, tid: Tid) {
        if self.process.shares_memory() || self.tracepoints.fast.jump_pads.is_empty() {
            return;
        }
        let Some(stopped) = self.process.stopped(tid) else {
            return;
        };
        let (Ok(pointer), Ok(sp)) = (stopped.thread_pointer(), stopped.sp()) else {
            return;
        };
        let fast = &self.tracepoints.fast;
        if pointer == 0 || fast.is_known(&self.process.memory, tid, pointer, sp) {
            return;
        }
        // If there are more threads than places in the collectors' table, threads take each other's
        // places, and this thread is registered again and again.
        let Some(stack) = fast
            .stack_of(tid, pointer, sp)
            .or_else(|| self.mapped_stack(sp, pointer))
        else {
            return;
        };
        let thread = Registration {
            pointer,
            processor: ptrace::processor_word(tid),
            stack,
        };
        let fast = &mut self.tracepoints.fast;
        fast.register(&self.process.memory, tid, &thread);
    }

    /// The lowest address and the end of the stack that contains `sp`.
    fn mapped_stack(&self, sp: u64, pointer: u64) -> Option<(u64, u64)> {
        let stack = maps::stack(self.process.any_task(), sp)?;
        let low = if stack.grows {
            stack.range.end.saturating_sub(1 << 30)
        } else {
            stack.range.start
        };
        Some((low, stack_end(sp, &stack, pointer)))
    }

    /// Removes a thread that is about to end or has ended. `others_remain` is true if the ends of
    /// other threads will be reported too.
    pub(super) fn leave_collectors(&mut self, tid: Tid, others_remain: bool) {
        if self.tracepoints.fast.jump_pads.is_unused() {
            return;
        }
        // Collectors record nothing for unregistered threads. But a thread with a handled hit may
        // have recorded that hit twice, and may not be registered any more.
        let thread = self.process.threads.get(&tid);
        let remembers = thread.is_some_and(|thread| !thread.dealt_with.is_empty());
        if remembers || self.tracepoints.fast.is_registered(tid) || !others_remain {
            self.drain_jump_pads();
        }
        self.leave_collector(tid, true);
        let fast = &mut self.tracepoints.fast;
        fast.unregister(&self.process.memory, tid);
    }

    /// Removes jumps that threads are inside of, while every thread is stopped.
    pub(super) fn remove_occupied_jumps_halted(&mut self) {
        if self.tracepoints.fast.any_inside_jump() {
            self.while_halted(Tracee::remove_occupied_jumps);
        }
    }

    /// Removes jumps that threads are inside of. Every thread must be stopped.
    pub(super) fn remove_occupied_jumps(&mut self) {
        for at in self.tracepoints.fast.take_occupied_jumps() {
            let jump_pads = &mut self.tracepoints.fast.jump_pads;
            if jump_pads.is_planted(at) {
                jump_pads.lift(&self.process.memory, at);
                self.trap_instead(at);
            }
        }
    }

    /// The address at which a thread at a jump resumes, if its hit there has been handled.
    pub(super) fn through_collector(&mut self, tid: Tid) -> Option<u64> {
        if self.tracepoints.fast.jump_pads.is_empty() {
            return None;
        }
        let thread = self.process.threads.get_mut(&tid)?;
        if thread.dealt_with.is_empty()
            || !thread.deliver.is_empty()
            || !matches!(thread.action, Action::Continue(_))
        {
            return None;
        }
        let stopped = thread.stopped().filter(|s| s.at() != At::GroupStop)?;
        let pc = stopped.pc().ok()?;
        let copy = self.tracepoints.fast.jump_pads.copy(pc)?;
        self.forget_hit(tid, pc).then_some(copy)
    }
}
