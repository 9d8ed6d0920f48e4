//! Keeping to the budget: what each hit has cost, and taking out and putting back the traps of probes that are paused.
//!
//! A trap is taken out and put back while the program runs, as far as the processor sees such a change all at once.
//! A thread that ran into it just before has hit it, and goes on as from any other hit.

use std::time::{Duration, Instant};

use crate::probe::budget::Missed;
use crate::sys::{monotonic_ns, processor_ns};

use super::interest::Seat;
use super::process::Process;

impl Process {
    /// Tracing begins.
    pub(super) fn begin_budget(&mut self) {
        self.hit_at = None;
        self.budget.program.of = Some(self.pid());
        self.budget.begin(monotonic_ns(), processor_ns());
    }

    /// See [`Trace::newly_missed`](crate::probe::trace::Trace::newly_missed).
    pub(crate) fn newly_missed(&mut self, seat: Seat, all: bool) -> Vec<(u32, Missed)> {
        let trace = &mut self.interests.of(seat).trace;
        trace.newly_missed(&mut self.budget, all)
    }

    /// A report has been dealt with, which the kernel had not before `since`.
    pub(super) fn count_costs(&mut self, since: &mut u64) {
        if !self.is_tracing() {
            return;
        }
        let now = monotonic_ns();
        let held = now.saturating_sub(std::mem::replace(since, now));
        self.budget.report();
        if let Some(at) = self.hit_at.take() {
            self.cost(now, at, held);
        }
    }

    /// A hit at `at` has held a thread, or all that could run, for so long altogether.
    pub(super) fn cost(&mut self, now: u64, at: u64, held: u64) {
        if self.budget.hit(now, at, held) {
            self.keep_budget();
        } else if self.budget.is_paused(at) && self.breakpoints.stands(at) {
            // Another has put the trap back.
            self.change_trap(at, true);
        }
    }

    /// Pauses probes that cost too much, and has those go on that have been paused for long enough.
    pub(crate) fn keep_budget(&mut self) {
        if !self.is_tracing() || self.end.is_some() {
            return;
        }
        let now = monotonic_ns();
        self.budget.settle(now, processor_ns());
        while let Some(at) = self.budget.pause(now) {
            self.change_trap(at, true);
        }
        for at in self.budget.resume(now) {
            self.change_trap(at, false);
        }
    }

    /// When a paused probe is to go on.
    pub(crate) fn pause_ends(&self) -> Option<Instant> {
        if !self.is_tracing() || !self.going {
            return None;
        }
        let wait = self.budget.wait(monotonic_ns())?;
        Some(Instant::now() + Duration::from_nanos(wait))
    }

    fn change_trap(&mut self, at: u64, out: bool) {
        // Words are written as wholes (`Memory::write_code`), the two halves of a T32 instruction may be in two.
        let size = self.breakpoints.size(at) as u64;
        let whole = at % 4 + size <= 4;
        let stand = self.going && !self.halting && !whole;
        if stand {
            self.halt();
        }
        if out {
            self.breakpoints.pause_probe(&self.memory, at);
        } else {
            self.breakpoints.resume_probe(&self.memory, at);
        }
        if stand && (self.non_stop || !self.eventful) {
            self.start_all();
        }
    }
}
