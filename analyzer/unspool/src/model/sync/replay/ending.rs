//! Handles calls that have not ended when the recording does: lasting waits, and unknown facts.

use super::Replay;
use crate::model::calls::Call;
use crate::model::sync::misuse::StillWaiting;
use crate::model::sync::under_way::Pending;
use crate::model::{ProgramEnd, ThreadIndex};
use crate::primitives::Kind;

impl Replay<'_> {
    /// Finishes the replay after the last call.
    pub(in crate::model::sync) fn finish(&mut self) {
        if self.model.recording.is_certain_between_gaps() {
            // A hold at the end confirms its orders.
            let end_ns = self.model.recording.duration_ns;
            for thread in (0..self.model.threads.len()).map(ThreadIndex) {
                for held in self.holds.of(thread) {
                    let kind = self.objects.objects[held.object.0].kind;
                    if !self.gaps.may_be_free(kind, held.stamp) {
                        self.order.confirm(thread, held, end_ns);
                    }
                }
            }
        }
        self.end_attempts();
        let slack = self.model.recording.slack_ns();
        for thread in 0..self.cut_short.len() {
            // The end of a program ends its threads at any point in their calls.
            let with_program =
                (self.model.recording).was_there_at_the_end(&self.model.threads[thread], slack);
            // A program that exits may have let its threads end first. In a killed one they may
            // have been stuck.
            let killed = matches!(
                self.model.recording.program_end,
                Some(ProgramEnd::Signal(_))
            );
            for (pending, sure) in std::mem::take(&mut self.cut_short[thread]) {
                if with_program && (sure || killed) {
                    self.unseen_ends = self.unseen_ends.saturating_sub(u64::from(sure));
                    self.waits_still(&pending, sure);
                    continue;
                }
                let ended_ns = self.model.threads[thread].ended_ns;
                let cancelled_ns = ended_ns.filter(|_| sure && pending.can_be_cancelled());
                if let Some(ended_ns) = cancelled_ns {
                    self.counts_cancelled(&pending, ended_ns);
                }
                // Whether the thread still had the mutex is unknown.
                if cancelled_ns.is_none() || pending.primitive.mutex.is_some() && !pending.alone {
                    self.doubt(&pending);
                }
            }
        }
        self.settle_semaphores();
        self.slots.finish();
        self.contention.assign_to(&mut self.objects);
    }

    pub(super) fn unfinished(&mut self, call: &Call, sure: bool) {
        if let Some(pending) = self.under_way.end(call.number) {
            self.waits_still(&pending, sure);
        }
    }

    /// Marks the calls of a thread as doubtful that continues after its reported end. The report
    /// was wrong, and whether these calls took or released anything is unknown.
    pub(super) fn goes_on(&mut self, thread: ThreadIndex) {
        let cut_short = self.cut_short.get_mut(thread.0).map(std::mem::take);
        for (pending, _) in cut_short.into_iter().flatten() {
            self.doubt(&pending);
        }
    }

    pub(super) fn doubt(&mut self, pending: &Pending) {
        if let Some(returned_ns) = pending.returned_ns {
            self.waited(pending, returned_ns);
        }
        let operation = pending.primitive.operation;
        if pending.primitive.kind == Kind::Join {
            // The next join with this handle is most likely another thread's.
            let object = &mut self.objects.objects[pending.object.0];
            object.destroyed_ns.get_or_insert(self.latest_ns);
        }
        if operation.acquires() || pending.primitive.mutex.is_some() {
            self.objects.objects[pending.object.0].doubtful = true;
            self.holds.doubt(pending.object);
            if let Some(held) = &pending.given_up {
                self.objects.objects[held.object.0].doubtful = true;
            }
        }
    }

    fn waits_still(&mut self, pending: &Pending, sure: bool) {
        if !pending.primitive.operation.may_wait() {
            return;
        }
        self.misuse.still.push(StillWaiting {
            thread: pending.thread,
            object: pending.object,
            used: pending.used,
            operation: pending.primitive.operation,
            since_ns: pending.returned_ns.unwrap_or(pending.entered_ns),
            timed: pending.timed,
            sure,
            owner: pending.owner.filter(|_| pending.alone),
        });
        let end_ns = self.model.threads[pending.thread.0]
            .ended_ns
            .unwrap_or(self.model.recording.duration_ns);
        let ns = end_ns.saturating_sub(pending.entered_ns);
        // A wait that may have ended unseen has no length but that of the part that was seen.
        let until_ns = if sure {
            Some(end_ns)
        } else {
            pending.returned_ns
        };
        if let Some(until_ns) = until_ns
            && (pending.queued || self.has_waited(pending, ns))
        {
            self.waited(pending, until_ns);
        }
    }
}
