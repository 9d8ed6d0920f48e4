//! Non-stop: each thread is halted and resumed for itself, and what happens to one is reported while the
//! others run (GDB manual, "Non-Stop Mode").
//!
//! The process is going all the time. A thread with something to report stays where it is, is reported by
//! [`take_stops`](Tracee::take_stops) and held from then on. What needs everybody's standstill, as a
//! step over a trap does, halts all and starts again those that ran.

use crate::arch;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{Pending, State, Thread};

impl Tracee {
    /// Changes between stopping all and stopping one. All are halted afterwards, or none that was running.
    pub(crate) fn set_non_stop(&mut self, on: bool) {
        if on == self.non_stop || self.end.is_some() {
            return;
        }
        if on && !self.jump_pads.is_empty() {
            // What is fast needs everybody's standstill now and then.
            let _ = self.standing_still(|process| {
                process.non_stop = true;
                process.set_probes()
            });
        }
        self.non_stop = on;
        if on {
            // Held until each is told to go.
            for thread in self.threads.values_mut() {
                thread.action = Action::Hold;
            }
            self.halt_ends(monotonic_ns());
            self.going = true;
        } else {
            self.halt();
            self.going = false;
        }
    }

    /// Does to each thread what `action` says, unless that is nothing. Only threads that are held can be
    /// resumed, and only those that are not can be held; `others` is what new threads do.
    pub(crate) fn resume_some(
        &mut self,
        action: impl Fn(Tid) -> Option<Action>,
        others: Option<Action>,
    ) {
        if let Some(others) = others {
            self.default_action = others.without_signal();
        }
        for (tid, thread) in &mut self.threads {
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
        self.let_live();
        self.take_signals();
        self.drop_stale();
        self.choose_interrupted();
        let waits = |thread: &Thread| !thread.pending.is_empty();
        let going = self.threads.iter().filter(|(_, thread)| !waits(thread));
        let going: Vec<Tid> = going.map(|(tid, _)| *tid).collect();
        let mut stuck = false;
        for tid in going {
            if let Some(at) = self.answered_trap(tid) {
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

    /// Asks one thread that runs to stop, as if by the terminal's interrupt key; if none does, the next that is resumed.
    pub(crate) fn interrupt_one(&mut self) {
        self.interrupt_due = true;
        self.choose_interrupted();
    }

    /// Whether a thread goes, or is about to.
    pub(crate) fn any_goes(&self) -> bool {
        let mut threads = self.threads.values();
        self.end.is_none() && threads.any(|thread| thread.action != Action::Hold)
    }

    /// Has a thread stop for the interrupt that is due, unless one has been chosen and has neither ended nor had something else to
    /// report. Who is about to go goes nowhere.
    fn choose_interrupted(&mut self) {
        if !self.interrupt_due {
            return;
        }
        let interrupt = Some(Cause::Interrupt);
        for thread in self.threads.values_mut() {
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
        let mut threads = self.threads.iter_mut();
        let Some((tid, thread)) = threads.find(|(tid, thread)| {
            let goes = thread.action != Action::Hold && !matches!(thread.state, State::Exiting);
            let is_free = thread.wanted.is_none() && thread.pending.is_empty();
            goes && is_free && !self.holds.contains_key(tid)
        }) else {
            return;
        };
        if let State::Running(running) = &thread.state {
            thread.wanted = interrupt;
            running.interrupt();
        } else {
            let tid = *tid;
            self.report(tid, Pending::Wanted(Cause::Interrupt));
        }
    }

    /// What is to be reported by now. The threads it is about are held until they are resumed.
    pub(crate) fn take_stops(&mut self) -> Vec<Stop> {
        if !self.non_stop || !self.going {
            return Vec::new();
        }
        self.choose_interrupted();
        let mut stops: Vec<Stop> = self
            .exits
            .drain(..)
            .map(|(tid, code)| Stop::ThreadExited(tid, code))
            .collect();
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            let Some(thread) = self.threads.get_mut(&tid) else {
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
        if let Some(end) = &self.end {
            stops.push(end.clone());
            self.going = false;
        }
        self.eventful = false;
        stops
    }

    /// The threads that are held, and why, as far as that is known.
    pub(crate) fn held_threads(&mut self) -> Vec<Tid> {
        let held = |(tid, thread): (&Tid, &mut crate::ptrace::thread::Thread)| {
            (thread.action == Action::Hold && thread.stopped().is_some()).then_some(*tid)
        };
        self.threads.iter_mut().filter_map(held).collect()
    }

    /// A stop that the client asked for. Whether it was one.
    pub(super) fn wanted_stop(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        match thread.wanted.take() {
            Some(cause) if thread.pending.is_empty() => {
                self.report(tid, Pending::Wanted(cause));
                true
            }
            _ => false,
        }
    }

    /// Traps come or go: everybody stands still, unless the architecture allows that others run.
    pub(super) fn changing_text<T>(&mut self, change: impl FnOnce(&mut Tracee) -> T) -> T {
        if arch::TEXT_MAY_CHANGE {
            change(self)
        } else {
            self.standing_still(change)
        }
    }

    /// Everybody stands still while `change` is made, and those that ran go on; unless one of them has something to
    /// report for which all are halted.
    pub(super) fn standing_still<T>(&mut self, change: impl FnOnce(&mut Tracee) -> T) -> T {
        if !self.going || self.halting {
            return change(self);
        }
        self.halt();
        self.has_stopped_threads = true;
        let done = change(self);
        if self.non_stop || !self.eventful {
            self.start_all();
        }
        done
    }
}
