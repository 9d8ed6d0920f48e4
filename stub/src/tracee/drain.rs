//! Passes the hits that collectors have recorded to the traces, as if the threads were still there.

use std::time::Instant;

use crate::arch::fast::Noted;
use crate::sys::{Tid, monotonic_ns};
use crate::tracepoint::fast::pool::{Batch, Hit};
use crate::tracepoint::fast::recorded_hit::{RecordedHit, Scratch};

use super::Tracee;

/// Maximum cost of one hit, in nanoseconds. If the clock shows more, the thread waited for a
/// processor.
const MAX_COST: u64 = 10_000;
/// Cost of a hit outside of its own two timestamps, in nanoseconds.
const UNTIMED_COST: u64 = 100;

impl Tracee {
    /// Passes all waiting hits to the traces, and applies the budget.
    pub(crate) fn drain_jump_pads(&mut self) {
        // Applied after the last hit, because the mark of a pause follows all hits before the
        // pause.
        if self.take_hits() {
            self.keep_budget();
        }
    }

    /// Passes all waiting hits to the traces. True if they exceed the budget.
    pub(super) fn take_hits(&mut self) -> bool {
        if self.tracepoints.fast.jump_pads.is_unused() || self.process.end.is_some() {
            return false;
        }
        let told = self.subscriptions.are_drained();
        let mut over = false;
        // Just one pass, because other threads add hits all the time.
        let jump_pads = &mut self.tracepoints.fast.jump_pads;
        let Some(mut filled) = jump_pads.filled(&self.process.memory, told) else {
            return false;
        };
        if filled.is_empty() {
            return false;
        }
        if self.tracepoints.code_map.refresh(self.process.any_task()) {
            // Other code may now be at addresses in known stacks.
            for trace in self.subscriptions.traces() {
                trace.known_stacks.clear();
            }
        }
        self.tracepoints.budget.begin_batch();
        let mut batch = Batch::default();
        let mut scratch = Scratch::default();
        loop {
            let jump_pads = &self.tracepoints.fast.jump_pads;
            if !jump_pads.take(&self.process.memory, &mut filled, &mut batch) {
                self.tracepoints.budget.end_batch();
                let jump_pads = &mut self.tracepoints.fast.jump_pads;
                jump_pads.rest(&self.process.memory);
                return over;
            }
            let now = monotonic_ns();
            for (hit, noted) in batch.hits() {
                over |= self.recall(hit, &noted, &mut scratch, now);
            }
        }
    }

    /// Passes one hit to the traces, `now` by the monotonic clock. True if it exceeds the budget.
    fn recall(&mut self, hit: &Hit, noted: &Noted, scratch: &mut Scratch, now: u64) -> bool {
        let Some((at, blocks)) = self.tracepoints.fast.jump_pads.of(noted) else {
            return false;
        };
        let tid = Tid(noted.thread());
        let sp = noted.stack_pointer();
        if let Some(thread) = self.process.threads.get_mut(&tid)
            && let Some(index) = thread
                .dealt_with
                .iter()
                .rposition(|known| *known == (at, sp))
        {
            // A signal handler ran between this hit and its instruction, so the hit was recorded
            // twice.
            thread.dealt_with.remove(index);
            return false;
        }
        let code_map = &self.tracepoints.code_map;
        let mut recorded = RecordedHit::new(hit, noted, at, &blocks, code_map, scratch);
        for (_, subscription) in self.subscriptions.each() {
            if subscription.trace.hit(at, &mut recorded).needed {
                self.tracepoints.budget.need(at);
            }
        }
        let cost = hit.cost_ns.min(MAX_COST) + UNTIMED_COST;
        if !self.subscriptions.is_tracing() {
            return false;
        }
        self.tracepoints.budget.program.exclude(cost);
        self.tracepoints.budget.hit(now, at, cost)
    }

    /// Time of the next drain for a client that waits for hits.
    pub(crate) fn drain_due(&self) -> Option<Instant> {
        let waits = self.process.run.is_going()
            && !self.tracepoints.fast.jump_pads.is_empty()
            && self.subscriptions.are_drained();
        self.tracepoints
            .fast
            .jump_pads
            .pool()
            .filter(|_| waits)?
            .due()
    }

    pub(super) fn drain_if_due(&mut self) {
        let alarm = std::mem::take(&mut self.tracepoints.has_alarm);
        if !alarm && self.drain_due().is_none_or(|due| due > Instant::now()) {
            return;
        }
        let from = monotonic_ns();
        self.drain_jump_pads();
        if self.tracepoints.fast.jump_pads.was_full() {
            // Threads with further hits waited for this.
            let now = monotonic_ns();
            self.tracepoints.budget.held(now, now - from);
        }
    }
}
