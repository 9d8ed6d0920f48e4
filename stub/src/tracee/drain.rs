//! Hits that collectors have noted: they go to the traces as if their threads still stood there.

use std::time::Instant;

use crate::arch;
use crate::arch::fast::Noted;
use crate::sys::{Tid, monotonic_ns};
use crate::tracepoint::fast::pool::Hit;
use crate::tracepoint::fast::recorded_hit::RecordedHit;

use super::Tracee;

/// The most that one hit is said to cost, in nanoseconds. If the clock says more, its thread waited
/// for a processor.
const MAX_COST: u64 = 10_000;
/// The cost of a hit before and after its own two looks at the clock.
const UNTIMED_COST: u64 = 100;

impl Tracee {
    /// Notes the hits that wait.
    pub(crate) fn drain_jump_pads(&mut self) {
        // After all of them, not among them: a pause reports what came before it.
        if self.take_hits() {
            self.keep_budget();
        }
    }

    /// The same, whatever it costs; whether that was too much.
    pub(super) fn take_hits(&mut self) -> bool {
        if self.tracepoints.fast.jump_pads.is_unused() || self.process.end.is_some() {
            return false;
        }
        let told = self.subscriptions.are_drained();
        let mut over = false;
        // Once: while others run there will always be more.
        for hit in self
            .tracepoints
            .fast
            .jump_pads
            .drain(&self.process.memory, told)
        {
            over |= self.recall(&hit);
        }
        over
    }

    /// Hands a hit to the traces. Whether it cost too much.
    fn recall(&mut self, hit: &Hit) -> bool {
        let noted = Noted(&hit.bytes);
        let Some((at, blocks)) = self.tracepoints.fast.jump_pads.of(hit) else {
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
            // A handler came between this hit and its instruction.
            thread.dealt_with.remove(index);
            return false;
        }
        let mut recorded = RecordedHit::new(hit, &noted, at, &blocks);
        for (_, subscription) in self.subscriptions.each() {
            if subscription
                .trace
                .hit(at, arch::register_set_of, &mut recorded)
                .needed
            {
                self.tracepoints.budget.need(at);
            }
        }
        let cost = hit.cost_ns.min(MAX_COST) + UNTIMED_COST;
        self.subscriptions.is_tracing() && self.tracepoints.budget.hit(monotonic_ns(), at, cost)
    }

    /// When hits are to be drained for a client that waits for them.
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
        if self.drain_due().is_some_and(|due| due <= Instant::now()) {
            self.drain_jump_pads();
        }
    }
}
