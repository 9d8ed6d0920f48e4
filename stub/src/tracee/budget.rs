//! The budget of the tracepoints: what each hit has cost, and which traps are out because their tracepoints are paused.
//!
//! A trap is taken out and put back while the program runs, where the architecture allows that.
//! A thread that ran into it just before has hit it, and goes on as from any other hit.

use std::time::{Duration, Instant};

use crate::sys::{monotonic_ns, processor_ns};
use crate::tracepoint::budget::{Limit, Missed};
use crate::tracepoint::frame_buffer::Mark;

use super::Tracee;
use crate::subscription::role::Role;

/// A thread is not held for longer to drain what waits; if it seems so, the stub had to wait for a processor.
const LONGEST_DRAIN: u64 = 1_000_000;

/// A hit whose costs are not counted yet.
pub(super) struct HitCost {
    pub(super) at: u64,
    /// So long its thread was held to drain what others had noted.
    pub(super) draining: u64,
    /// It was none, but a step after one.
    pub(super) is_step: bool,
}

impl Tracee {
    /// Takes the strictest limit that clients have asked for.
    pub(crate) fn agree_on_budget(&mut self) {
        let asked = self.subscriptions.limit();
        self.budget.share = asked.map_or(self.budget.usual, Limit::share);
        // What was paused for a stricter limit goes on.
        self.keep_budget();
    }

    /// Tracing begins.
    pub(super) fn begin_budget(&mut self) {
        self.hit_cost = None;
        self.budget.program.of = Some(self.pid());
        self.budget.begin(monotonic_ns(), processor_ns());
    }

    /// See [`Experiment::newly_missed`](crate::tracepoint::experiment::Experiment::newly_missed).
    pub(crate) fn newly_missed(&mut self, role: Role, all: bool) -> Vec<(u32, Missed)> {
        let trace = &mut self.subscriptions.of(role).trace;
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
        if let Some(HitCost {
            at,
            draining,
            is_step,
        }) = self.hit_cost.take()
        {
            // What was drained then are others' hits.
            let draining = draining.min(held);
            self.budget.held(now, draining);
            match is_step {
                true => self.cost_of_step(now, at, held),
                false => self.cost(now, at, held - draining),
            }
        } else if std::mem::take(&mut self.alarmed) {
            self.budget.held(now, held.min(LONGEST_DRAIN));
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

    /// A step after a hit at `at` has done so.
    pub(super) fn cost_of_step(&mut self, now: u64, at: u64, held: u64) {
        if self.budget.step(now, at, held) {
            self.keep_budget();
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
            self.take_hits();
            self.mark(at, Mark::Paused);
        }
        let back = self.budget.resume(now);
        if !back.is_empty() {
            // Whoever was in a collector when it was switched off.
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
        if !self.is_tracing() || !self.going {
            return None;
        }
        let wait = self.budget.wait(monotonic_ns())?;
        Some(Instant::now() + Duration::from_nanos(wait))
    }

    fn change_trap(&mut self, at: u64, out: bool) {
        if self.jump_pads.is_planted(at) {
            self.jump_pads.switch(&self.memory, at, !out);
            return;
        }
        self.changing_text(|process| {
            if out {
                process.breakpoints.pause_probe(&process.memory, at);
            } else {
                process.breakpoints.resume_probe(&process.memory, at);
            }
        });
    }
}
