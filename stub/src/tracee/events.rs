//! Handles an event of a thread: queues it for the client, or resumes the thread.
//!
//! Events come in any order: a new thread's first stop before its creator's event, a thread's end
//! at any moment, an exec that takes another thread's id.

use crate::arch;
use crate::ptrace::action::Action;
use crate::ptrace::events::Event;
use crate::ptrace::stop::Cause;
use crate::ptrace::thread::{Motion, Pending};
use crate::sys::Tid;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::Tracee;

impl Tracee {
    /// Handles one report.
    pub(super) fn handle(&mut self, tid: Tid, status: Status) {
        self.subscriptions.thread_stops();
        let Some(event) = self.process.event(tid, status) else {
            return;
        };
        match event {
            Event::Child(status) => self.handle_child(tid, status),
            Event::Gone(end) => self.thread_gone(tid, end),
            Event::Signal(signal) => self.signal_stop(tid, signal),
            Event::Held => self.held(tid),
            Event::Made(new, how) => {
                if let Some(new) = new {
                    self.adopt(tid, new, how);
                }
                if !self.process.has_pending(tid) {
                    self.continue_unreported(tid);
                }
                if let Some(new) = new {
                    self.handle_waiting_reports(new);
                }
            }
            Event::VForkDone if self.stops_at_vfork() => {
                self.process.report(tid, Pending::Family(Cause::VForkDone));
            }
            Event::Exec(former) => self.executed(tid, former),
            Event::Exiting => self.thread_ends(tid),
            Event::SystemCall => {
                let reported = self.system_call(tid);
                self.record_step_out_of_call(tid);
                if !reported {
                    self.continue_unreported(tid);
                }
            }
            Event::VForkDone | Event::Other => self.continue_unreported(tid),
        }
    }

    /// Resumes a thread that has nothing to report, unless all threads are being stopped.
    pub(super) fn continue_unreported(&mut self, tid: Tid) {
        if self.process.run.may_start() {
            self.start_one(tid);
        }
    }

    /// Handles the stop of a thread that was interrupted or is a member of a group-stop.
    fn held(&mut self, tid: Tid) {
        self.leave_slot(tid);
        let can_trap = !self.breakpoints.is_empty()
            || !self.tracepoints.fast.jump_pads.is_unused()
            || !self.process.watches().is_empty();
        if self.process.run.blocks_starts()
            && let Some(thread) = self.process.threads.get_mut(&tid)
            && (can_trap || thread.steps())
            && ptrace::trap_is_pending(tid)
        {
            // The thread executes nothing before it has reported that trap.
            thread.go(Motion::Continue, 0);
            return;
        }
        self.leave_collector(tid, true);
        if self.awaited_stop(tid) || self.process.wanted_stop(tid) {
            return;
        }
        let thread = self.process.threads.get_mut(&tid);
        let newborn = thread.is_some_and(|thread| std::mem::take(&mut thread.newborn));
        if newborn {
            self.process.watch_thread(tid);
            self.born(tid);
        }
        if newborn && self.stop_policy.thread_events {
            self.process.report(tid, Pending::Created);
        } else {
            self.continue_unreported(tid);
        }
    }

    /// Handles the first stop of a new thread.
    fn born(&mut self, tid: Tid) {
        let fast = &self.tracepoints.fast;
        if !self.subscriptions.follow_threads() && fast.has_no_registered() {
            return;
        }
        let stopped = self.process.stopped(tid);
        let pointer = stopped.and_then(|stopped| stopped.thread_pointer().ok());
        for log in self.subscriptions.logs() {
            log.born(tid, pointer);
        }
        if let Some(pointer) = pointer {
            let fast = &mut self.tracepoints.fast;
            fast.unregister_pointer(&self.process.memory, pointer);
        }
    }

    fn signal_stop(&mut self, tid: Tid, signal: i32) {
        self.leave_slot(tid);
        if signal == libc::SIGTRAP && self.pass_alarm(tid) {
            return;
        }
        if let Some((at, standing)) = self.leave_collector(tid, false)
            && self.collector_stop(tid, signal, at, standing)
        {
            return;
        }
        if signal == libc::SIGTRAP && self.trap(tid) {
            return;
        }
        let pass = self.stop_policy.pass.contains(signal)
            && !self.is_breakpoint_fault(tid, signal)
            && !self.is_fatal_for_control(signal);
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return;
        };
        let motion = if thread.steps() {
            Motion::Step
        } else {
            Motion::Continue
        };
        let shown = thread.action.is_step();
        let returning = thread.returning.iter().position(|other| *other == signal);
        if let Some(index) = returning {
            thread.returning.swap_remove(index);
        }
        let pass = returning.is_some() || (pass && !shown);
        let inside_jump = self.tracepoints.fast.is_inside_jump(tid);
        let goes = self.process.run.may_start() && thread.action != Action::Hold;
        let waits = pass && goes && returning.is_none() && self.hold_if_fatal(tid, signal);
        if pass && goes && !inside_jump && !waits {
            self.go(tid, motion, signal);
            return;
        }
        // The thread may be gone by now, and the signal with it.
        let Ok(info) = ptrace::signal_info(tid) else {
            return;
        };
        if pass {
            if let Some(thread) = self.process.threads.get_mut(&tid) {
                thread.deliver.push_back(info);
            }
        } else {
            self.process.report(tid, Pending::Signal(info));
        }
    }

    /// True if a thread has reached a breakpoint in memory that is not executable. Functions that a
    /// debugger calls return to a breakpoint on the stack.
    fn is_breakpoint_fault(&mut self, tid: Tid, signal: i32) -> bool {
        let stopped = self.process.stopped(tid);
        matches!(signal, libc::SIGSEGV | libc::SIGILL | libc::SIGBUS)
            && stopped
                .and_then(|stopped| stopped.pc().ok())
                .is_some_and(|pc| self.breakpoints.planted(pc))
    }

    /// Handles a `SIGTRAP` from one of our traps or the end of a step. False if it is the program's
    /// own.
    fn trap(&mut self, tid: Tid) -> bool {
        let Ok(info) = ptrace::signal_info(tid) else {
            return true;
        };
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return true;
        };
        // The program's own trap is not a step.
        let recorded = thread.records_steps() && !arch::is_trap_report(info.code());
        let stepping = thread.action.is_step() || recorded;
        if self.process.watch_trap(tid, &info) {
            return true;
        }
        if arch::is_trap_report(info.code())
            && let Some(stopped) = self.process.stopped(tid)
        {
            let Ok(pc) = stopped.pc() else {
                return true;
            };
            let at = pc.wrapping_sub(arch::TRAP_ADVANCE);
            if self.step_trap(tid, at) || self.planted_trap(tid, at) {
                return true;
            }
            // The trap was removed before its report, while this thread ran.
            if arch::TRAP_ADVANCE != 0
                && !self.is_trap(at)
                && let Some(stopped) = self.process.stopped(tid)
                && stopped.set_pc(at).is_ok()
            {
                self.continue_unreported(tid);
                return true;
            }
        }
        if stepping && !self.process.is_sent_trap(tid) {
            self.stepped(tid);
            if !self.process.run.has_event() {
                self.continue_unreported(tid);
            }
            return true;
        }
        false
    }

    /// Handles a trap of a client or a tracepoint that a thread has executed. False if there is
    /// none.
    fn planted_trap(&mut self, tid: Tid, at: u64) -> bool {
        let (planted, probed) = (self.breakpoints.planted(at), self.breakpoints.probed(at));
        let Some(stopped) = self.process.stopped(tid).filter(|_| planted || probed) else {
            return false;
        };
        // Back to before the trap: the next resume decides what happens there.
        let _ = arch::TRAP_ADVANCE == 0 || stopped.set_pc(at).is_ok();
        self.keep_trap_handler(tid);
        let again = self.forget_hit(tid, at);
        let stops = probed && !again && self.probe_hit(tid, at);
        let breaks = planted && !again && self.breaks(tid, at);
        if breaks || stops {
            if probed {
                self.remember_hit(tid, at);
            }
            let stop = match stops {
                true => Pending::Tracepoint(at),
                false => Pending::Breakpoint(at),
            };
            self.process.report(tid, stop);
        } else if self.subscriptions.is_held(tid) {
            self.remember_hit(tid, at);
        } else {
            self.pass(tid, at);
        }
        true
    }

    /// Handles the entry to or the exit from a system call. True if it must be reported.
    pub(super) fn system_call(&mut self, tid: Tid) -> bool {
        let call = self.process.system_call(tid);
        let wanted = call.filter(|(number, _)| self.stop_policy.calls.contain(*number));
        let Some((number, enters)) = wanted else {
            return false;
        };
        self.process.report(tid, Pending::Call(number, enters));
        true
    }

    /// Handles an exec, after which the memory has nothing planted. Observers with a running trace
    /// start again before the new program runs.
    fn executed(&mut self, tid: Tid, former: Tid) {
        if former != tid {
            // No end of this thread is reported, because it goes on with another id.
            self.subscriptions
                .logs()
                .for_each(|log| log.killed(former, 0));
        }
        self.leave_memory();
        self.breakpoints.forget();
        self.displaced.forget();
        self.tracepoints.forget_planted();
        let path = self.process.executable().unwrap_or_default();
        let path = path.to_string_lossy().into_owned();
        for role in self.subscriptions.execute_file(&path) {
            self.subscriptions.hold(tid, role, None);
        }
        if self.stop_policy.execs {
            self.process.report(tid, Pending::Exec(path));
        } else {
            self.continue_unreported(tid);
        }
    }
}
