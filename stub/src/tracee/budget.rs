//! The budget of the tracepoints: what each hit has cost, and which traps are out because their
//! tracepoints are paused.
//!
//! A trap is taken out and put back while the program runs, where the architecture allows that.
//! A thread that ran into it just before has hit it, and goes on as from any other hit.

use std::time::{Duration, Instant};

use crate::sys::{monotonic_ns, processor_ns};
use crate::tracepoint::budget::{HitCost, Limit, Missed};
use crate::tracepoint::frame_buffer::Mark;

use super::Tracee;
use crate::subscription::role::Role;

/// A thread is not held for longer to drain what waits; if it seems so, the stub had to wait for a
/// processor.
const LONGEST_DRAIN: u64 = 1_000_000;

impl Tracee {
    /// Takes the strictest limit that clients have asked for.
    pub(crate) fn agree_on_budget(&mut self) {
        let asked = self.subscriptions.limit();
        self.tracepoints.budget.share = asked.map_or(self.tracepoints.budget.usual, Limit::share);
        // What was paused for a stricter limit goes on.
        self.keep_budget();
    }

    /// Tracing begins.
    pub(super) fn begin_budget(&mut self) {
        self.tracepoints.hit_cost = None;
        self.tracepoints.budget.program.of = Some(self.process.pid());
        self.tracepoints
            .budget
            .begin(monotonic_ns(), processor_ns());
    }

    /// See [`Experiment::newly_missed`](crate::tracepoint::experiment::Experiment::newly_missed).
    pub(crate) fn newly_missed(&mut self, role: Role, all: bool) -> Vec<(u32, Missed)> {
        let trace = &mut self.subscriptions.of(role).trace;
        trace.newly_missed(&mut self.tracepoints.budget, all)
    }

    /// A report has been dealt with, which the kernel had not before `since`.
    pub(super) fn count_costs(&mut self, since: &mut u64) {
        if !self.subscriptions.is_tracing() {
            return;
        }
        let now = monotonic_ns();
        let held = now.saturating_sub(std::mem::replace(since, now));
        self.tracepoints.budget.report();
        if let Some(HitCost {
            at,
            draining,
            is_step,
        }) = self.tracepoints.hit_cost.take()
        {
            // What was drained then are others' hits.
            let draining = draining.min(held);
            self.tracepoints.budget.held(now, draining);
            match is_step {
                true => self.cost_of_step(now, at, held),
                false => self.cost(now, at, held - draining),
            }
        } else if std::mem::take(&mut self.tracepoints.drained_for_alarm) {
            self.tracepoints.budget.held(now, held.min(LONGEST_DRAIN));
        }
    }

    /// A hit at `at` has held a thread, or all that could run, for so long altogether.
    pub(super) fn cost(&mut self, now: u64, at: u64, held: u64) {
        if self.tracepoints.budget.hit(now, at, held) {
            self.keep_budget();
        } else if self.tracepoints.budget.is_paused(at) && self.breakpoints.stands(at) {
            // Another has put the trap back.
            self.change_trap(at, true);
        }
    }

    /// A step after a hit at `at` has done so.
    pub(super) fn cost_of_step(&mut self, now: u64, at: u64, held: u64) {
        if self.tracepoints.budget.step(now, at, held) {
            self.keep_budget();
        }
    }

    /// Pauses probes that cost too much, and has those go on that have been paused for long enough.
    pub(crate) fn keep_budget(&mut self) {
        if !self.subscriptions.is_tracing() || self.process.end.is_some() {
            return;
        }
        let now = monotonic_ns();
        self.tracepoints.budget.settle(now, processor_ns());
        while let Some(at) = self.tracepoints.budget.pause(now) {
            self.change_trap(at, true);
            self.take_hits();
            self.mark(at, Mark::Paused);
        }
        let back = self.tracepoints.budget.resume(now);
        if !back.is_empty() {
            // Hits of threads that were in a collector when it was switched off.
            self.take_hits();
        }
        for at in back {
            self.mark(at, Mark::Resumed);
            self.change_trap(at, false);
        }
    }

    fn mark(&mut self, at: u64, mark: Mark) {
        for trace in self.subscriptions.traces() {
            trace.mark(at, mark);
        }
    }

    /// When a paused probe is to go on.
    pub(crate) fn pause_ends(&self) -> Option<Instant> {
        if !self.subscriptions.is_tracing() || !self.process.run.is_going() {
            return None;
        }
        let wait = self.tracepoints.budget.wait(monotonic_ns())?;
        Some(Instant::now() + Duration::from_nanos(wait))
    }

    fn change_trap(&mut self, at: u64, out: bool) {
        if self.tracepoints.fast.jump_pads.is_planted(at) {
            self.tracepoints
                .fast
                .jump_pads
                .switch(&self.process.memory, at, !out);
            return;
        }
        self.changing_text(|tracee| {
            if out {
                tracee.breakpoints.pause_probe(&tracee.process.memory, at);
            } else {
                tracee.breakpoints.resume_probe(&tracee.process.memory, at);
            }
        });
    }
}
