//! From going to halted: taking the kernel's reports, stopping all threads, and the stop that is
//! reported.
//!
//! What the client may want to know is queued on its thread ([`Pending`]). One stop is reported,
//! and the others wait for the next [`resume`](Tracee::resume).
//!
//! [`Pending`]: crate::ptrace::thread::Pending

use std::time::Instant;

use crate::arch;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::{Cause, Stop};
use crate::sys::signals;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;

/// The most reports that are handled before clients have their turn.
const MAX_BATCH_REPORTS: u32 = 128;

impl Tracee {
    /// Handles the reports that have come. If one of them is for the client, halts the program and
    /// returns the stop.
    pub(crate) fn poll(&mut self) -> Option<Stop> {
        // First of all: no observer is heard while the rest is done.
        self.release_overdue();
        let mut since = monotonic_ns();
        let mut reports = 0;
        while let Some((tid, status)) = self.process.next_report(false) {
            self.handle(tid, status);
            self.count_costs(&mut since);
            reports += 1;
            if reports == MAX_BATCH_REPORTS {
                signals::raise_again();
                break;
            }
            if self.process.run.is_about_to_halt() {
                break;
            }
        }
        if self.process.children.any_at_trap() {
            self.halt();
            if self.process.run.goes_on() {
                self.start_all();
            }
        }
        self.step_over_queued();
        self.remove_occupied_jumps_halted();
        self.place_jumps_if_due();
        self.drain_if_due();
        self.check_forked();
        self.keep_budget();
        self.retire_probes();
        self.reset_steps_if_due();
        if !self.process.run.is_about_to_halt() {
            return None;
        }
        let stop = self.take_stop();
        if stop.is_none() {
            self.start_all();
        }
        stop
    }

    /// Stops a program that goes, for the client's sake. Reports a stop that is there already
    /// instead of the interrupt.
    pub(crate) fn interrupt(&mut self) -> Option<Stop> {
        if !self.process.is_going() {
            return None;
        }
        self.halt();
        let stop = self.take_stop().unwrap_or_else(|| {
            self.process.run.set(RunState::Halted);
            Stop::Thread(self.process.current(), Cause::Interrupt)
        });
        self.show(&stop);
        Some(stop)
    }

    /// The stop to report, if there is one; the program is halted then. If what happened is no
    /// longer true, because its thread died, the program goes on.
    pub(super) fn take_stop(&mut self) -> Option<Stop> {
        if !self.process.is_going() {
            return None;
        }
        if self.process.run.has_event() {
            self.halt();
        }
        self.process.run.clear_event();
        // The ends of threads come before the end of their process.
        let exit = self.process.thread_exits.pop_front();
        let stop = exit
            .map(|(tid, code)| Stop::ThreadExited(tid, code))
            .or_else(|| self.process.end.clone())
            .or_else(|| self.process.take_pending());
        if let Some(stop) = stop {
            self.process.run.set(RunState::Halted);
            self.show(&stop);
            return Some(stop);
        }
        if self.nothing_runs() {
            self.process.run.set(RunState::Halted);
            return Some(Stop::NothingRuns);
        }
        None
    }

    /// Whether the client is to know that no thread is left to run.
    pub(super) fn nothing_runs(&self) -> bool {
        self.stop_policy.no_resumed && self.process.nothing_runs()
    }

    /// Remembers what the client is about to see.
    pub(super) fn show(&mut self, stop: &Stop) {
        self.process.schedule_step_reset();
        match stop {
            // A thread that was interrupted at a trap has yet to execute it.
            Stop::Thread(tid, Cause::Interrupt) => {
                self.process.mark_current(*tid);
                self.interrupt_due = false;
            }
            Stop::Thread(tid, _) => self.process.mark_shown(*tid),
            _ => {}
        }
    }

    /// Stops every thread, and takes children past the traps they wait at. A thread in vfork(2)
    /// stops only when its child has gone on, so children come first.
    pub(super) fn halt(&mut self) {
        self.process.run.block_starts();
        self.process.interrupt_all();
        let all: Vec<Tid> = self.process.threads.keys().copied().collect();
        self.read_stops(&all);
        loop {
            if self.process.children.any_at_trap() && self.process.all_stopped(true) {
                self.step_children();
                continue;
            }
            // A report that has been read cannot be waited for later.
            if self.process.all_stopped(false) && !self.process.has_reports() {
                break;
            }
            match self.process.next_report(true) {
                Some((tid, status)) => self.handle(tid, status),
                None => {
                    // Nothing is left to wait for: the process has vanished.
                    self.process.threads.clear();
                    self.process.end.get_or_insert(Stop::Killed(libc::SIGKILL));
                    break;
                }
            }
        }
        self.process.run.unblock_starts(false);
        self.end_steps();
        self.drop_ended_series();
        self.remove_occupied_jumps();
        self.drain_jump_pads();
    }

    /// Runs `change` while every thread is stopped; those that ran go on, unless one of them has
    /// something to report.
    pub(super) fn while_halted<T>(&mut self, change: impl FnOnce(&mut Tracee) -> T) -> T {
        if !self.process.run.may_start() {
            return change(self);
        }
        self.halt();
        self.subscriptions.thread_stops();
        let done = change(self);
        if self.process.run.goes_on() {
            self.start_all();
        }
        done
    }

    /// Runs `change`, which plants or removes traps: while every thread is stopped, unless the
    /// architecture lets them run.
    pub(super) fn changing_text<T>(&mut self, change: impl FnOnce(&mut Tracee) -> T) -> T {
        if arch::TEXT_MAY_CHANGE {
            change(self)
        } else {
            self.while_halted(change)
        }
    }

    /// Has the kernel forget the steps of threads that are stopped.
    pub(super) fn reset_steps(&mut self) {
        let others = self.process.reset_steps();
        let blocked = self.process.run.block_starts();
        for (tid, status) in others {
            self.handle(tid, status);
        }
        self.process.run.unblock_starts(blocked);
    }

    fn reset_steps_if_due(&mut self) {
        let due = self.process.step_reset_due();
        if due.is_some_and(|due| due <= Instant::now()) {
            self.process.cancel_step_reset();
            self.reset_steps();
        }
    }
}
