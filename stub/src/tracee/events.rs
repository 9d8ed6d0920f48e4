//! The kernel's reports, one by one, and the way from going to halted.
//!
//! Reports come in any order: a new thread's first stop before its parent's event, a thread's
//! end at any moment, an exec that takes another thread's id. What the client may want to know is
//! queued on its thread ([`Pending`]); one is reported, the others wait for the next
//! [`resume`](Tracee::resume). All other stops end here.

use crate::arch;
use crate::sys::memory::Memory;
use crate::sys::ptrace;
use crate::sys::signals;
use crate::sys::wait::Status;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{At, Motion, Pending, State, Thread};

/// So many reports are taken before the client has its turn.
const AT_ONCE: u32 = 128;

impl Tracee {
    /// Takes the reports that have come. If one of them is for the client, halts and returns it.
    pub(crate) fn poll(&mut self) -> Option<Stop> {
        // First: while what follows is done no observer is heard.
        self.release_overdue();
        let mut since = monotonic_ns();
        let mut reports = 0;
        while let Some((tid, status)) = self.next_report(false) {
            self.handle(tid, status);
            self.count_costs(&mut since);
            reports += 1;
            if reports == AT_ONCE {
                signals::raise_again();
                break;
            }
            if self.eventful && self.going && !self.non_stop {
                break;
            }
        }
        if self.children_wait() {
            self.halt();
            if self.going && (self.non_stop || !self.eventful) {
                self.start_all();
            }
        }
        self.step_over_queued();
        self.pass_inside_jumps();
        self.place_if_due();
        self.drain_if_due();
        self.check_forked();
        self.keep_budget();
        self.retire_probes();
        self.reset_steps_if_due();
        if !self.going || self.non_stop {
            return None;
        }
        if self.eventful {
            let stop = self.take_stop();
            if stop.is_none() {
                self.start_all();
            }
            return stop;
        }
        None
    }

    /// Stops a going program for the client's sake. What is already there to be reported is.
    pub(crate) fn interrupt(&mut self) -> Option<Stop> {
        if !self.going {
            return None;
        }
        self.halt();
        let stop = self.take_stop().unwrap_or_else(|| {
            self.going = false;
            Stop::Thread(self.current(), Cause::Interrupt)
        });
        self.show(&stop);
        Some(stop)
    }

    /// The stop to report, if there is one; everything is halted then. If what happened has become
    /// void (its thread died), the program goes on.
    pub(super) fn take_stop(&mut self) -> Option<Stop> {
        if !self.going {
            return None;
        }
        if self.eventful {
            self.halt();
        }
        self.eventful = false;
        // Those who ended before their process did are told of first.
        let exit = self.exits.pop_front();
        let stop = exit
            .map(|(tid, code)| Stop::ThreadExited(tid, code))
            .or_else(|| self.end.clone())
            .or_else(|| self.take_pending());
        if let Some(stop) = stop {
            self.going = false;
            self.show(&stop);
            return Some(stop);
        }
        if self.nothing_runs() {
            self.going = false;
            return Some(Stop::NothingRuns);
        }
        None
    }

    /// Whether nobody is left to run but somebody is held. Threads that are about to be swept
    /// away by the process's exit look held, but are no longer stopped.
    pub(super) fn nothing_runs(&self) -> bool {
        let alive = |thread: &Thread| !matches!(thread.state, State::Exiting);
        self.stop_policy.no_resumed
            && !self
                .threads
                .values()
                .any(|thread| alive(thread) && thread.action != Action::Hold)
            && self
                .threads
                .iter()
                .any(|(tid, thread)| alive(thread) && ptrace::event_message(*tid).is_ok())
    }

    /// Steps are reported first: the client that asked for one waits for it.
    fn take_pending(&mut self) -> Option<Stop> {
        let has_step = |thread: &Thread| matches!(thread.pending.front(), Some(Pending::Step));
        let due =
            |thread: &&mut Thread| thread.action != Action::Hold && !thread.pending.is_empty();
        let stepped = self
            .threads
            .iter()
            .find(|(_, thread)| has_step(thread))
            .map(|(tid, _)| *tid);
        let tid = match stepped {
            Some(tid) => tid,
            None => *self.threads.iter_mut().find(|(_, thread)| due(thread))?.0,
        };
        let thread = self.threads.get_mut(&tid)?;
        let cause = thread.take_cause()?;
        Some(Stop::Thread(tid, cause))
    }

    /// Remembers what the client is about to see.
    pub(super) fn show(&mut self, stop: &Stop) {
        self.schedule_step_reset();
        if let Stop::Thread(tid, cause) = stop {
            self.shown = *tid;
            // Who was interrupted in front of a trap has yet to execute it.
            if *cause == Cause::Interrupt {
                self.interrupt_due = false;
            } else if let Some(thread) = self.threads.get_mut(tid) {
                thread.shown_at = thread.stopped().and_then(|stopped| stopped.pc().ok());
            }
        }
    }

    /// Stops every thread, and takes children past the traps they wait at. A thread inside vfork(2) stops only when its child has gone on,
    /// so children are looked after first.
    pub(super) fn halt(&mut self) {
        self.halting = true;
        for thread in self.threads.values() {
            if let State::Running(running) = &thread.state {
                running.interrupt();
            }
        }
        let all: Vec<Tid> = self.threads.keys().copied().collect();
        self.read_stops(&all);
        loop {
            if self.children_wait() && self.all_stopped(true) {
                self.step_children();
                continue;
            }
            // What has been read must not be waited for later.
            if self.all_stopped(false) && !self.has_reports() {
                break;
            }
            match self.next_report(true) {
                Some((tid, status)) => self.handle(tid, status),
                None => {
                    // Nothing left to wait for: the process is gone without a word.
                    self.threads.clear();
                    self.end.get_or_insert(Stop::Killed(libc::SIGKILL));
                    break;
                }
            }
        }
        self.halting = false;
        self.end_steps();
        self.drop_step_series();
        self.lift_occupied_jumps();
        self.drain_jump_pads();
    }

    fn all_stopped(&self, but_in_vfork: bool) -> bool {
        let pid = self.pid();
        self.threads.iter().all(|(tid, thread)| match thread.state {
            State::Stopped(_) => true,
            // The one it waits for may be held.
            State::Running(_) if thread.lends_memory => true,
            State::Running(_) => but_in_vfork && thread.vfork_child.is_some(),
            State::Exiting => *tid == pid,
        })
    }

    /// One report.
    pub(super) fn handle(&mut self, tid: Tid, status: Status) {
        self.has_stopped_threads = true;
        if self.children.contains_key(&tid) {
            self.handle_child(tid, status);
            return;
        }
        if !self.threads.contains_key(&tid) {
            return;
        }
        match status {
            Status::Exited(code) => self.thread_gone(tid, Stop::Exited(code)),
            Status::Killed(signal) => self.thread_gone(tid, Stop::Killed(signal)),
            Status::Signal(signal) => self.signal_stop(tid, signal),
            Status::Held(signal) => self.held(tid, signal),
            Status::Clone | Status::Fork | Status::VFork => {
                self.mark_stopped(tid, At::InCall);
                if let Ok(new) = ptrace::event_message(tid) {
                    self.adopt(tid, Tid(new as i32), status);
                }
                if !self.has_pending(tid) {
                    self.continue_unreported(tid);
                }
            }
            Status::VForkDone => {
                self.mark_stopped(tid, At::InCall);
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.vfork_child = None;
                    thread.lends_memory = false;
                }
                if self.stop_policy.vforks {
                    self.report(tid, Pending::Family(Cause::VForkDone));
                } else {
                    self.continue_unreported(tid);
                }
            }
            Status::Exec => self.executed(tid),
            Status::Exiting => self.thread_ends(tid),
            Status::Syscall => {
                self.mark_stopped(tid, At::Event);
                let reported = self.call_stop(tid);
                self.record_step_out_of_call(tid);
                if !reported {
                    self.continue_unreported(tid);
                }
            }
            Status::Other => {
                self.mark_stopped(tid, At::Event);
                self.continue_unreported(tid);
            }
        }
    }

    /// Nothing to report: the thread goes on, unless all are being stopped.
    pub(super) fn continue_unreported(&mut self, tid: Tid) {
        if self.going && !self.halting {
            self.start_one(tid);
        }
    }

    fn has_pending(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| !thread.pending.is_empty())
    }

    /// Something to report.
    pub(super) fn report(&mut self, tid: Tid, pending: Pending) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.pending.push_back(pending);
            self.eventful = true;
        }
    }

    fn held(&mut self, tid: Tid, signal: i32) {
        self.mark_stopped(tid, At::held(signal));
        self.leave_slot(tid);
        let can_trap =
            !self.breakpoints.is_empty() || !self.jump_pads.is_unused() || !self.watches.is_empty();
        if self.halting
            && let Some(thread) = self.threads.get_mut(&tid)
            && (can_trap || thread.steps())
            && ptrace::trap_is_pending(tid)
        {
            // It executes nothing before it has reported that.
            thread.go(Motion::Continue, 0);
            return;
        }
        self.leave_collector(tid, true);
        if self.awaited_stop(tid) || self.wanted_stop(tid) {
            return;
        }
        let newborn = self
            .threads
            .get_mut(&tid)
            .is_some_and(|thread| std::mem::take(&mut thread.newborn));
        if newborn {
            self.watch_thread(tid);
            self.born(tid);
        }
        if newborn && self.stop_policy.thread_events {
            self.report(tid, Pending::Created);
        } else {
            self.continue_unreported(tid);
        }
    }

    /// A thread stands for the first time.
    fn born(&mut self, tid: Tid) {
        if !self.subscriptions.follow_threads() && self.registered.is_empty() {
            return;
        }
        let stopped = self.stopped(tid);
        let pointer = stopped.and_then(|stopped| stopped.thread_pointer().ok());
        for log in self.subscriptions.logs() {
            log.born(tid, pointer);
        }
        if let Some(pointer) = pointer {
            self.unregister_pointer(pointer);
        }
    }

    fn signal_stop(&mut self, tid: Tid, signal: i32) {
        self.mark_stopped(tid, At::Signal);
        self.leave_slot(tid);
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
        let Some(thread) = self.threads.get_mut(&tid) else {
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
        let inside_jumps = self.inside_jumps.iter().any(|(other, _)| *other == tid);
        let goes = self.going && !self.halting && thread.action != Action::Hold;
        let waits = pass && goes && returning.is_none() && self.hold_if_fatal(tid, signal);
        if pass && goes && !inside_jumps && !waits {
            self.go(tid, motion, signal);
            return;
        }
        // The thread may be gone by now; then so is the signal.
        let Ok(info) = ptrace::signal_info(tid) else {
            return;
        };
        if pass {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.deliver.push_back(info);
            }
        } else {
            self.report(tid, Pending::Signal(info));
        }
    }

    /// Whether a thread came to a breakpoint in memory that cannot be executed: debuggers have the functions that they call
    /// return to one on the stack.
    fn is_breakpoint_fault(&mut self, tid: Tid, signal: i32) -> bool {
        matches!(signal, libc::SIGSEGV | libc::SIGILL | libc::SIGBUS)
            && self
                .stopped(tid)
                .and_then(|stopped| stopped.pc().ok())
                .is_some_and(|pc| self.breakpoints.planted(pc))
    }

    /// A `SIGTRAP`: one of our traps, the end of a step, or, `false`, the program's own affair.
    fn trap(&mut self, tid: Tid) -> bool {
        let Ok(info) = ptrace::signal_info(tid) else {
            return true;
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return true;
        };
        // A trap of the program's own is no step.
        let series = thread.records_steps() && !arch::is_trap_report(info.code());
        let stepping = thread.action.is_step() || series;
        if self.watch_trap(tid, &info) {
            return true;
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return true;
        };
        if arch::is_trap_report(info.code())
            && let Some(stopped) = thread.stopped()
        {
            let Ok(pc) = stopped.pc() else {
                return true;
            };
            let at = pc.wrapping_sub(arch::TRAP_ADVANCE);
            if self.step_trap(tid, at) {
                return true;
            }
            let (planted, probed) = (self.breakpoints.planted(at), self.breakpoints.probed(at));
            if (planted || probed)
                && let Some(thread) = self.threads.get_mut(&tid)
                && let Some(stopped) = thread.stopped()
            {
                // As if the trap had not been executed: whoever resumes decides anew.
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
                    self.report(tid, stop);
                } else if self.is_held(tid) {
                    self.remember_hit(tid, at);
                } else {
                    self.pass(tid, at);
                }
                return true;
            }
            // Taken out between the trap and its report, while others ran.
            if self.non_stop
                && arch::TRAP_ADVANCE != 0
                && !self.is_trap(at)
                && let Some(stopped) = self.stopped(tid)
                && stopped.set_pc(at).is_ok()
            {
                self.continue_unreported(tid);
                return true;
            }
        }
        if stepping && !self.is_sent_trap(tid) {
            self.stepped(tid);
            if !self.eventful {
                self.continue_unreported(tid);
            }
            return true;
        }
        false
    }

    /// A thread is at the kernel's door. Whether that is to be reported.
    pub(super) fn call_stop(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        // Without the kernel's word (Linux 5.3) it is the beginning and the end by turns.
        let entry = ptrace::at_call_entry(tid).unwrap_or(!thread.in_call);
        thread.in_call = entry;
        if entry && let Some(stopped) = thread.stopped() {
            stopped.is_in_call();
        }
        let general = thread.stopped().and_then(|stopped| stopped.general().ok());
        let number = general.and_then(arch::system_call);
        match number.filter(|number| self.stop_policy.calls.contain(*number)) {
            Some(number) => {
                self.report(tid, Pending::Call(number, entry));
                true
            }
            None => false,
        }
    }

    /// An exec: the process has one thread, with the first thread's id, and new memory.
    fn executed(&mut self, tid: Tid) {
        let former = ptrace::event_message(tid).map_or(tid, |former| Tid(former as i32));
        let action = self
            .threads
            .get(&former)
            .or_else(|| self.threads.get(&tid))
            .map_or(self.default_action, |thread| thread.action);
        self.threads.clear();
        self.exits.clear();
        self.threads.insert(tid, Thread::new(tid, action));
        self.mark_stopped(tid, At::Event);
        self.set_exit_stop(tid);
        self.leave_memory();
        self.breakpoints.forget();
        self.used_step_traps.clear();
        self.stacks.clear();
        self.displaced.forget();
        self.jump_pads.forget();
        self.trap_handler.forget();
        self.registered.clear();
        self.inside_jumps.clear();
        self.watches.clear();
        if let Ok(memory) = Memory::open(tid) {
            self.memory = memory;
        }
        self.shown = tid;
        let path = self.executable().unwrap_or_default();
        self.executed_file(tid, &path.to_string_lossy());
        if self.stop_policy.execs {
            self.report(tid, Pending::Exec(path.to_string_lossy().into_owned()));
        } else {
            self.continue_unreported(tid);
        }
    }

    /// A thread's first stop, or that it has not come yet.
    pub(super) fn adopt_thread(&mut self, creator: Tid, tid: Tid) {
        let mut thread = Thread::new(tid, self.default_action);
        thread.newborn = true;
        let creator = self.threads.get(&creator);
        thread.stops_at_end = creator.is_some_and(|creator| creator.stops_at_end);
        self.threads.insert(tid, thread);
        while let Some(status) = self.wait_queue.take(tid) {
            self.handle(tid, status);
        }
    }
}
