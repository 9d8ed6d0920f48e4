//! Non-stop mode: each thread is stopped and resumed separately, and its stops are reported while
//! the others run (GDB manual, "Non-Stop Mode").
//!
//! The process is going all the time. A thread with something to report stays stopped, and
//! [`take_stops`](Tracee::take_stops) reports and holds it. A step over a trap halts all threads,
//! and then resumes those that ran.

use crate::sys::{Tid, monotonic_ns};

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{Pending, State, Thread};

impl Tracee {
    /// Enters or leaves non-stop mode. Every thread is held after entering, and stopped after
    /// leaving.
    pub(crate) fn set_non_stop(&mut self, on: bool) {
        if on == self.process.run.is_non_stop() || self.process.end.is_some() {
            return;
        }
        if !on {
            self.process.run.set(RunState::AllStop);
            self.halt();
            self.process.run.set(RunState::Halted);
            return;
        }
        self.leave_none_asleep();
        if !self.tracepoints.fast.jump_pads.is_empty() || self.subscriptions.want_fast() {
            // Jumps must go, because each change of a jump stops every thread. Tracepoints that
            // wait for the next decision get traps.
            self.while_halted(|tracee| {
                let blocked = tracee.process.run.block_starts();
                tracee.process.run.set(RunState::NonStop);
                let _ = tracee.set_probes();
                tracee.process.run.unblock_starts(blocked);
            });
        }
        // The client must resume each thread.
        for thread in self.process.threads.values_mut() {
            thread.action = Action::Hold;
        }
        self.subscriptions.halt_ends(monotonic_ns());
        self.process.run.set(RunState::NonStop);
    }

    /// Applies `action` to each thread for which it returns one. Only a held thread can be resumed,
    /// and only one that is not held can be halted. New threads get `others`.
    pub(crate) fn resume_some(
        &mut self,
        action: impl Fn(Tid) -> Option<Action>,
        others: Option<Action>,
    ) {
        if let Some(others) = others {
            self.process.default_action = others.without_signal();
        }
        for (tid, thread) in &mut self.process.threads {
            let held = thread.action == Action::Hold;
            match action(*tid) {
                Some(Action::Hold) if !held => {
                    thread.wanted = Some(Cause::Halted);
                    if let State::Running(running) = &thread.state {
                        running.interrupt();
                    }
                }
                Some(action) if held && action != Action::Hold => {
                    thread.action = action;
                    thread.through = None;
                }
                _ => {}
            }
        }
        self.process.let_outlive_stub();
        self.process.take_signals();
        self.drop_stale();
        self.choose_interrupted();
        let waits = |thread: &Thread| !thread.pending.is_empty();
        let going = self
            .process
            .threads
            .iter()
            .filter(|(_, thread)| !waits(thread));
        let going: Vec<Tid> = going.map(|(tid, _)| *tid).collect();
        let mut stuck = false;
        for tid in going {
            if let Some(at) = self.handled_trap(tid) {
                self.forget_hit(tid, at);
                stuck |= !self.displace(tid, at);
            }
        }
        if stuck {
            self.halt();
            self.step_over_traps();
        }
        self.start_all();
        self.step_over_queued();
    }

    /// Interrupts one running thread, as the terminal's interrupt key would. If no thread runs,
    /// interrupts the next that is resumed.
    pub(crate) fn interrupt_one(&mut self) {
        self.interrupt_due = true;
        self.choose_interrupted();
    }

    /// Chooses a thread for the due interrupt, unless the thread chosen before is still alive and
    /// has nothing else to report. A chosen thread that is about to start stays stopped.
    fn choose_interrupted(&mut self) {
        if !self.interrupt_due {
            return;
        }
        let interrupt = Some(Cause::Interrupt);
        for thread in self.process.threads.values_mut() {
            if matches!(
                thread.pending.front(),
                Some(Pending::Wanted(Cause::Interrupt))
            ) {
                return;
            }
            if thread.wanted == interrupt {
                if thread.pending.is_empty() {
                    return;
                }
                thread.wanted = None;
            }
        }
        let mut threads = self.process.threads.iter_mut();
        let Some((tid, thread)) = threads.find(|(tid, thread)| {
            let goes = thread.action != Action::Hold && !matches!(thread.state, State::Exiting);
            let is_free = thread.wanted.is_none() && thread.pending.is_empty();
            goes && is_free && !self.subscriptions.is_held(**tid)
        }) else {
            return;
        };
        if let State::Running(running) = &thread.state {
            thread.wanted = interrupt;
            running.interrupt();
        } else {
            let tid = *tid;
            self.process.report(tid, Pending::Wanted(Cause::Interrupt));
        }
    }

    /// Takes the stops to report now. Their threads are held until the client resumes them.
    pub(crate) fn take_stops(&mut self) -> Vec<Stop> {
        if !self.process.run.is_non_stop() {
            return Vec::new();
        }
        self.choose_interrupted();
        let mut stops: Vec<Stop> = self
            .process
            .thread_exits
            .drain(..)
            .map(|(tid, code)| Stop::ThreadExited(tid, code))
            .collect();
        let tids: Vec<Tid> = self.process.threads.keys().copied().collect();
        for tid in tids {
            let Some(thread) = self.process.threads.get_mut(&tid) else {
                continue;
            };
            if thread.action == Action::Hold || thread.stopped().is_none() {
                continue;
            }
            let Some(cause) = thread.take_cause() else {
                continue;
            };
            thread.action = Action::Hold;
            thread.wanted = None;
            stops.push(Stop::Thread(tid, cause));
        }
        for stop in &stops {
            self.show(stop);
        }
        if let Some(end) = &self.process.end {
            stops.push(end.clone());
            self.process.run.set(RunState::Halted);
        }
        self.process.run.clear_event();
        stops
    }
}
