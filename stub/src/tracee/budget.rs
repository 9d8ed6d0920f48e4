//! Applies the budget of tracepoints: counts the cost of hits, and removes the traps of paused
//! tracepoints.
//!
//! If the architecture allows it, the stub removes and inserts these traps while the program runs.
//! A thread that executed a trap just before has hit it, and continues as from any other hit.

use std::time::{Duration, Instant};

use crate::sys::{monotonic_ns, processor_ns};
use crate::tracepoint::budget::{HitCost, Limit, Missed};
use crate::tracepoint::frame_buffer::Mark;

use super::Tracee;
use crate::subscription::role::Role;

impl Tracee {
    /// Adopts the strictest limit that clients have set.
    pub(crate) fn agree_on_budget(&mut self) {
        let asked = self.subscriptions.limit();
        self.tracepoints.budget.share = asked.map_or(self.tracepoints.budget.usual, Limit::share);
        // A probe that was paused for a stricter limit may resume.
        self.keep_budget();
    }

    /// Resets the budget for a trace that begins.
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

    /// Counts the cost of a handled report, which the kernel did not have before `since`.
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
            // The drained hits are those of other threads.
            let draining = draining.min(held);
            self.tracepoints.budget.held(now, draining);
            match is_step {
                true => self.cost_of_step(now, at, held),
                false => self.cost(now, at, held - draining),
            }
        }
    }

    /// Counts a hit at `at` that stopped threads for `held` nanoseconds in total.
    pub(super) fn cost(&mut self, now: u64, at: u64, held: u64) {
        if self.tracepoints.budget.hit(now, at, held) {
            self.keep_budget();
        } else if self.tracepoints.budget.is_paused(at) && self.breakpoints.stands(at) {
            // A breakpoint or a step at this address has inserted the trap again.
            self.change_trap(at, true);
        }
    }

    /// Counts a step after a hit at `at`, likewise.
    pub(super) fn cost_of_step(&mut self, now: u64, at: u64, held: u64) {
        if self.tracepoints.budget.step(now, at, held) {
            self.keep_budget();
        }
    }

    /// Pauses probes that cost too much, and resumes those that were paused for long enough.
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
            // Hits of threads that were in a collector when the stub switched it off.
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

    /// Time at which paused probes can resume.
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
