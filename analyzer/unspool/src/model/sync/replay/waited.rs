//! Counts waits that have ended, and attributes each to the thread that held the object or ended
//! it.

use super::holding::lost;
use super::{Replay, WAITED_NS};
use crate::model::Creation;
use crate::model::schedule::{CallIndex, blocked_within};
use crate::model::sync::contention::ContendedWait;
use crate::model::sync::journal::WaitSpan;
use crate::model::sync::objects::TimedOut;
use crate::model::sync::past_holds::PastHold;
use crate::model::sync::stale_wake::UnexplainedWait;
use crate::model::sync::under_way::Pending;
use crate::model::sync::wakes::Ender;
use crate::primitives::Operation;

impl Replay<'_> {
    pub(super) fn has_waited(&self, pending: &Pending, ns: u64) -> bool {
        match pending.primitive.operation {
            Operation::Lock | Operation::ReadLock | Operation::WriteLock => {
                pending.slept || pending.holder.is_some()
            }
            // These may return at once: a free semaphore, or the last arrival at a barrier.
            _ if self.futexes => pending.slept,
            _ => ns >= WAITED_NS,
        }
    }

    /// Counts a wait, and names the thread that it was for.
    pub(super) fn waited(&mut self, pending: &Pending, to_ns: u64) {
        let ns = to_ns.saturating_sub(pending.entered_ns);
        let identity = self.identity(pending.thread);
        let used = &mut self.objects.uses[pending.used.0];
        used.waits.add(ns);
        used.share(identity).waited_ns += ns;
        used.of_created |= self.model.threads[pending.thread.0].creation != Creation::Main;
        // This may add the hold that the wait was for.
        let tenure = self.tenure(pending, to_ns);
        let object = &mut self.objects.objects[pending.object.0];
        object.waits.add(ns);
        object.stood_ns += self.stalls.within(pending.entered_ns, to_ns);
        if let Some(place) = pending.place {
            object.queued += u64::from(place.behind);
            // Not when the call begins: it may find a semaphore free, and not wait.
            object.longest_queue = object.longest_queue.max(place.length);
        }
        self.usage.waited(pending.thread, pending.used, ns);
        self.slots
            .waited(pending.thread, pending.used, pending.entered_ns, to_ns);
        if let Some(hold) = &mut object.longest_hold {
            hold.add_wait(pending.used, pending.thread, pending.entered_ns, to_ns);
        }
        let ender = match tenure {
            Some(tenure) => Some(Ender {
                thread: tenure.thread,
                path: tenure.given_up,
            }),
            None => pending.ended,
        };
        // No thread makes itself wait.
        let ender = ender.filter(|ender| ender.thread != pending.thread);
        // The thread that released it held it to the end; the holder at the wait's beginning may
        // not have.
        let ended = ender.map(|ended| (ended.thread, None));
        let taken = pending.holder.filter(|(_, taken)| taken.is_some());
        if let Some(journal) = &mut self.journal {
            journal.waits.push(WaitSpan {
                thread: pending.thread,
                used: pending.used,
                from_ns: pending.entered_ns,
                to_ns,
                holder: pending.holder.map(|(holder, _)| holder),
                waker: ender.map(|ender| ender.thread),
            });
        }
        let Some((holder, taken)) = taken.or(ended).or(pending.holder) else {
            if pending.timed_out {
                let used = &mut self.objects.uses[pending.used.0];
                used.timed_out.merge(TimedOut {
                    count: 1,
                    total_ns: ns,
                });
                return;
            }
            if let Some((word, number)) = pending.stale {
                let used = pending.used;
                let wait = UnexplainedWait { used, identity, ns };
                self.stale_waits.over(word, number, wait);
            }
            return;
        };
        // After its wake-up, the waiter may wait for a processor. Up to then, the holder may.
        let (waiter, from_ns) = (pending.thread, pending.entered_ns);
        let schedule = &self.model.schedule;
        let woken = schedule.runnable_within(waiter, from_ns, to_ns).last();
        let woken_ns = woken.map_or(to_ns, |(from, _)| from);
        let holds = self.past_holds.within(pending.object, from_ns, to_ns);
        let mut holds: Vec<PastHold> = holds.filter(|hold| hold.thread != waiter).collect();
        if holds.is_empty() {
            holds.push(PastHold {
                thread: holder,
                from_ns,
                to_ns: woken_ns,
            });
        }
        let lost = |thread, from, to| lost(&self.stalls, schedule, thread, from, to).runnable_ns;
        // Between two holds, the next holder may already wait for a processor.
        let before = holds.iter().skip(1).map(|hold| Some(hold.to_ns));
        let of_holders = holds
            .iter()
            .zip(before.chain([None]))
            .map(|(hold, before)| {
                let from_ns = before.map_or(hold.from_ns, |ns| ns.min(hold.from_ns));
                lost(hold.thread, from_ns, hold.to_ns)
            });
        let runnable_ns = of_holders.sum::<u64>() + lost(waiter, from_ns, to_ns);
        self.objects.objects[pending.object.0].runnable_ns += runnable_ns.min(ns);
        let ended = ender.filter(|_| taken.is_none());
        let holding = self.identity(holder);
        let wait = ContendedWait {
            waiter: pending.used,
            holder: taken,
            ended: ended.and_then(|ended| ended.path),
            identities: (identity, holding),
            threads: (pending.thread, holder),
            ns,
        };
        // A futex call may be the wait for this same object.
        let calls = holds
            .iter()
            .filter(|hold| self.identity(hold.thread) == holding)
            .flat_map(|hold| {
                blocked_within(schedule.of_thread(hold.thread), hold.from_ns, hold.to_ns)
            });
        let calls = calls.filter_map(|(call, ns)| Some((call?, ns)));
        let is_futex = |call| schedule.call(call).is_some_and(|call| call.is_futex);
        let calls: Vec<(CallIndex, u64)> = calls.filter(|(call, _)| !is_futex(*call)).collect();
        self.contention.add(&wait, calls);
    }
}
