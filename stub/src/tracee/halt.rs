//! Halts the program: handles the kernel's reports, stops all threads, and chooses the stop to
//! report.
//!
//! Everything that the client may want to know is queued on its thread ([`Pending`]). The stub
//! reports one stop. The others wait for the next [`resume`](Tracee::resume).
//!
//! [`Pending`]: crate::ptrace::thread::Pending

use std::time::{Duration, Instant};

use crate::arch;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::{Cause, Stop};
use crate::sys::signals;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;

/// Maximum number of reports handled before clients have their turn.
const MAX_BATCH_REPORTS: u32 = 128;
/// Time between looks for reports while threads may be in an uninterruptible wait.
const HALT_POLL_INTERVAL: Duration = Duration::from_micros(200);

impl Tracee {
    /// Handles the reports that have come. If one of them is for the client, halts the program and
    /// returns the stop.
    pub(crate) fn poll(&mut self) -> Option<Stop> {
        // First, because the stub reads no observer's packets while it does the rest.
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

    /// Halts a program that is going, for the client. If a stop is already pending, returns that
    /// stop instead of the interrupt.
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

    /// Halts the program and returns the stop to report. `None` if what happened is no longer true,
    /// because its thread died; then the program continues.
    pub(super) fn take_stop(&mut self) -> Option<Stop> {
        if !self.process.is_going() {
            return None;
        }
        if self.process.run.has_event() {
            self.halt();
        }
        self.process.run.clear_event();
        // Threads end before their process does.
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

    /// True if the client must learn that no thread is left to run.
    pub(super) fn nothing_runs(&self) -> bool {
        self.stop_policy.no_resumed && self.process.nothing_runs()
    }

    /// Records what the client is about to see.
    pub(super) fn show(&mut self, stop: &Stop) {
        self.process.schedule_step_reset();
        match stop {
            // A thread that was interrupted at a trap has yet to execute the trap.
            Stop::Thread(tid, Cause::Interrupt) => {
                self.process.mark_current(*tid);
                self.interrupt_due = false;
            }
            Stop::Thread(tid, _) => self.process.mark_shown(*tid),
            _ => {}
        }
    }

    /// Stops every thread, and takes children past the traps they are at. A thread in vfork(2)
    /// stops only after its child has continued, so children come first.
    pub(super) fn halt(&mut self) {
        self.halt_within(None);
    }

    /// As [`halt`](Self::halt). After `timeout`, threads that are in an uninterruptible wait count
    /// as stopped: their requested stop precedes their next instruction.
    pub(super) fn halt_within(&mut self, timeout: Option<Duration>) {
        self.stop_threads(timeout);
        self.process.run.unblock_starts(false);
        self.end_steps();
        self.drop_ended_series();
        self.remove_occupied_jumps();
        self.drain_jump_pads();
    }

    /// Stops the threads that were left asleep and have woken since. The others sleep now, in calls
    /// whose addresses are known. Every other thread must be stopped.
    pub(super) fn stop_woken(&mut self) {
        if self.process.has_left() {
            let blocked = self.process.run.blocks_starts();
            self.stop_threads(None);
            self.process.run.unblock_starts(blocked);
        }
    }

    /// Stops the threads that were left asleep, and leaves none asleep from now on.
    pub(super) fn leave_none_asleep(&mut self) {
        self.process.leaves_asleep = false;
        self.stop_woken();
    }

    /// Stops every thread that can stop and is not left asleep, and blocks starts.
    fn stop_threads(&mut self, timeout: Option<Duration>) {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        self.process.run.block_starts();
        self.process.interrupt_all();
        let all: Vec<Tid> = self.process.threads.keys().copied().collect();
        self.read_stops(&all);
        loop {
            if self.process.children.any_at_trap() && self.process.all_stopped(true) {
                self.step_children();
                continue;
            }
            // Reports that are already read must be handled now, because later waits do not return
            // them.
            if self.process.all_stopped(false) && !self.process.has_reports() {
                break;
            }
            match self.process.next_report(deadline.is_none()) {
                Some((tid, status)) => self.handle(tid, status),
                None if deadline.is_some() && self.process.may_report() => {
                    if deadline < Some(Instant::now()) {
                        self.process.mark_unstoppable();
                    }
                    std::thread::sleep(HALT_POLL_INTERVAL);
                }
                None => {
                    // The process has vanished without a report.
                    self.process.threads.clear();
                    self.process.end.get_or_insert(Stop::Killed(libc::SIGKILL));
                    break;
                }
            }
        }
    }

    /// Runs `change` while every thread is stopped. Then resumes the threads that ran, unless one
    /// of them has something to report.
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

    /// Runs `change`, which inserts or removes traps. Stops every thread for it, unless the
    /// architecture allows such changes while threads run.
    pub(super) fn changing_text<T>(&mut self, change: impl FnOnce(&mut Tracee) -> T) -> T {
        if arch::TEXT_MAY_CHANGE {
            change(self)
        } else {
            self.while_halted(change)
        }
    }

    /// Makes the kernel forget the single-steps of stopped threads.
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
