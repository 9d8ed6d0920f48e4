//! Tracks acquisitions and releases, and the mistakes that threads make with them.

use unspool_capture::Source;

use super::Replay;
use crate::model::ThreadIndex;
use crate::model::calls::Call;
use crate::model::schedule::Schedule;
use crate::model::sync::holds::Held;
use crate::model::sync::journal::HoldSpan;
use crate::model::sync::meaning::EOWNERDEAD;
use crate::model::sync::misuse::{Mistake, MistakeKind};
use crate::model::sync::objects::{EndedHold, Lost, ObjectIndex, UseIndex};
use crate::model::sync::order::Taking;
use crate::model::sync::past_holds::PastHold;
use crate::model::sync::recorder_stalls::RecorderStalls;
use crate::model::sync::semaphores::Possession;
use crate::model::sync::under_way::Pending;
use crate::model::thread::Creation;
use crate::primitives::{Kind, Operation};

/// The part of a thread's time that the recorder or other threads on its processor took.
pub(super) fn lost(
    stalls: &RecorderStalls,
    schedule: &Schedule,
    thread: ThreadIndex,
    from_ns: u64,
    to_ns: u64,
) -> Lost {
    let waits = schedule.runnable_within(thread, from_ns, to_ns);
    Lost {
        stood_ns: stalls.within(from_ns, to_ns),
        runnable_ns: waits
            .map(|(from, to)| to - from - stalls.within(from, to))
            .sum(),
    }
}

impl Replay<'_> {
    /// Notes that a thread has taken a semaphore, which may be a lock.
    pub(super) fn took_semaphore(&mut self, pending: &Pending, now: u64) {
        let (thread, object) = (pending.thread, pending.object);
        if !pending.alone {
            self.objects.objects[object.0].taken += 1;
        }
        let events = self.events_of(thread);
        let possession = Possession::new(thread, pending.used, now, events);
        self.semaphores.took(object, possession, pending.alone);
    }

    /// Notes that a thread posts a semaphore, which ends its hold if the semaphore is a lock.
    pub(super) fn posts_semaphore(&mut self, thread: ThreadIndex, object: ObjectIndex, now: u64) {
        let Some(held) = self.semaphores.posts(object, thread) else {
            return;
        };
        let ended = EndedHold {
            thread,
            taken: held.taken,
            from_ns: held.since_ns,
            to_ns: now,
            events: self.events_of(thread).saturating_sub(held.events),
            waiter: held.waiter,
        };
        let (stalls, schedule) = (&self.stalls, &self.model.schedule);
        self.objects.add_hold(object, ended, || {
            lost(stalls, schedule, thread, held.since_ns, now)
        });
        self.semaphore_holds.push((
            object,
            HoldSpan {
                thread,
                taken: held.taken,
                from_ns: held.since_ns,
                to_ns: now,
            },
        ));
    }

    /// Decides which semaphores are locks, and keeps the holds of these.
    pub(super) fn settle_semaphores(&mut self) {
        self.semaphores.assign_to(&mut self.objects);
        let spans = std::mem::take(&mut self.semaphore_holds);
        let objects = &self.objects.objects;
        let locks = spans
            .into_iter()
            .filter(|(object, _)| objects[object.0].used_as_lock);
        if let Some(journal) = self.journal.as_mut().filter(|journal| journal.keeps_holds) {
            journal.holds.extend(locks.map(|(_, span)| span));
            journal.holds.sort_by_key(|span| span.to_ns);
        }
    }

    pub(super) fn acquired(&mut self, pending: &Pending, now: u64) {
        let object = pending.object;
        if pending.holder.is_none() && !pending.slept {
            let took = now.saturating_sub(pending.entered_ns);
            self.unhindered.add(took);
        }
        self.objects.objects[object.0].taken += 1;
        let identity = self.identity(pending.thread);
        let used = &mut self.objects.uses[pending.used.0];
        used.share(identity).taken += 1;
        let shared = matches!(
            pending.primitive.operation,
            Operation::ReadLock | Operation::TryReadLock
        );
        if let Some(held) = self.holds.held_mut(pending.thread, object) {
            if !self.gaps.may_be_free(pending.primitive.kind, held.stamp) {
                held.depth += 1;
                return;
            }
            self.holds.drop_unseen(pending.thread, object);
        }
        self.order.discard(pending.thread, object);
        let events = self.events_of(pending.thread);
        self.holds
            .push_out(&mut self.objects, pending.thread, object, shared);
        self.holds.take(
            &mut self.objects,
            pending.thread,
            Held {
                object,
                taken: pending.used,
                asked_ns: pending.entered_ns,
                since_ns: now,
                shared,
                depth: 1,
                waiter: None,
                events,
                stamp: self.gaps.stamp(pending.primitive.kind),
            },
        );
    }

    /// Ends the hold of a thread that has ended. Another thread then takes its robust mutex.
    ///
    /// The recorded end may be later than that, because the kernel gives the mutex up first.
    pub(super) fn release_of_ended(&mut self, pending: &Pending, call: &Call, now: u64) {
        let threads = &self.model.threads;
        let owner_died = call.result == Some(EOWNERDEAD);
        let mut holders = self.holds.holders(pending.object).iter();
        let ended = holders.find_map(|holder| {
            let ended_ns = threads[holder.0].ended_ns.unwrap_or(u64::MAX);
            let has_ended = owner_died || ended_ns <= now;
            (has_ended && *holder != pending.thread).then_some((*holder, ended_ns.min(now)))
        });
        if let Some((holder, ended_ns)) = ended {
            self.release(holder, pending.object, ended_ns);
        }
    }

    /// The thread that keeps another from taking a lock, and where it took it. Notes the waiter.
    pub(super) fn waits_behind(
        &mut self,
        object: ObjectIndex,
        used: UseIndex,
        thread: ThreadIndex,
        shared: bool,
    ) -> Option<(ThreadIndex, UseIndex)> {
        let kind = self.objects.objects[object.0].kind;
        let is_held = |held: &Held| !self.gaps.may_be_free(kind, held.stamp);
        let (holder, taken) = self.holds.against(object, thread, shared, is_held)?;
        if let Some(held) = self.holds.held_mut(holder, object) {
            held.waiter.get_or_insert((used, thread));
        }
        Some((holder, taken))
    }

    /// A reader has released a lock: those that waited for it wait for another reader, if any.
    fn waits_behind_another(&mut self, object: ObjectIndex, before: ThreadIndex) {
        let kind = self.objects.objects[object.0].kind;
        let is_held = |held: &Held| !self.gaps.may_be_free(kind, held.stamp);
        let Some((holder, taken)) = self.holds.against(object, before, false, is_held) else {
            return;
        };
        let mut first: Option<(u64, UseIndex, ThreadIndex)> = None;
        for pending in self.under_way.behind_mut(object, before) {
            pending.holder = Some((holder, Some(taken)));
            let waiter = (pending.entered_ns, pending.used, pending.thread);
            first = Some(first.map_or(waiter, |first| first.min(waiter)));
        }
        if let Some((_, used, thread)) = first
            && let Some(held) = self.holds.held_mut(holder, object)
        {
            held.waiter.get_or_insert((used, thread));
        }
    }

    /// A wait at a condition ends: its thread holds the mutex again.
    pub(super) fn holds_again(&mut self, pending: &mut Pending, now: u64) {
        let Some(mut held) = pending.given_up.take() else {
            return;
        };
        held.asked_ns = now;
        held.since_ns = now;
        held.waiter = None;
        held.events = self.events_of(pending.thread);
        held.stamp = self.gaps.stamp(Kind::Mutex);
        let (thread, objects) = (pending.thread, &mut self.objects);
        self.holds
            .push_out(objects, thread, held.object, held.shared);
        self.holds.take(objects, thread, held);
    }

    /// What a thread surely holds. Usually empty, which costs nothing.
    pub(super) fn held_by(&self, thread: ThreadIndex) -> Vec<Held> {
        let objects = &self.objects.objects;
        let is_held = |h: &&Held| !self.gaps.may_be_free(objects[h.object.0].kind, h.stamp);
        let held = self.holds.of(thread).iter().filter(is_held);
        held.copied().collect()
    }

    /// Notes the order of a lock that a call is about to take: its object, or the mutex that a wait
    /// at a condition takes again, which has no time limit.
    pub(super) fn takes(&mut self, pending: &Pending, object: ObjectIndex, shared: bool) {
        let held = self.held_by(pending.thread);
        let taking = Taking {
            thread: pending.thread,
            object,
            used: pending.used,
            shared,
            timed: pending.timed && object == pending.object,
            now: pending.entered_ns,
        };
        self.order.takes(&held, taking);
    }

    pub(super) fn given_up(
        &mut self,
        thread: ThreadIndex,
        object: ObjectIndex,
        used: UseIndex,
        now: u64,
    ) -> Option<Held> {
        // At the beginning, a thread may be in a call that takes the lock.
        let is_known = !self.ran_before(thread) || self.misuse.has_released(thread, object);
        if let Some(held) = self.holds.held_mut(thread, object)
            && held.depth > 1
        {
            held.depth -= 1;
            return None;
        }
        if let Some(held) = self.release(thread, object, now) {
            self.holds.freed(object);
            return Some(held);
        }
        let holder = self.holds.holder(object);
        if is_known
            && self.objects.objects[object.0].kind == Kind::Mutex
            && (holder.is_some() || self.holds.is_free(object))
        {
            self.mistake(MistakeKind::Unlock, object, thread, used, holder);
        }
        // The previous holder no longer has it.
        if let Some((holder, _)) = holder {
            self.release(holder, object, now);
        }
        None
    }

    /// True if the thread ran before the recording began.
    fn ran_before(&self, thread: ThreadIndex) -> bool {
        match self.model.threads[thread.0].creation {
            Creation::Before => true,
            Creation::Main => self.model.recording.source == Some(Source::Attached),
            _ => false,
        }
    }

    /// Releases a thread's hold on an object, and confirms the orders of the locks taken during the
    /// hold.
    pub(super) fn release(
        &mut self,
        thread: ThreadIndex,
        object: ObjectIndex,
        now: u64,
    ) -> Option<Held> {
        let events = self.events_of(thread);
        let (objects, gaps) = (&mut self.objects, &self.gaps);
        let (stalls, schedule) = (&self.stalls, &self.model.schedule);
        let lost = |since| lost(stalls, schedule, thread, since, now);
        let held = self
            .holds
            .release(objects, thread, object, now, events, gaps, &lost)?;
        if held.shared {
            self.waits_behind_another(object, thread);
        } else if self.queues.has_any(object) {
            let hold = PastHold {
                thread,
                from_ns: held.since_ns,
                to_ns: now,
            };
            self.past_holds.add(object, hold);
        }
        self.misuse.gave_up(thread, object);
        let kind = self.objects.objects[object.0].kind;
        if self.gaps.may_be_two(kind, held.stamp) {
            self.order.discard(thread, object);
        } else {
            self.order.confirm(thread, &held, now);
            if let Some(journal) = self.journal.as_mut().filter(|journal| journal.keeps_holds) {
                journal.holds.push(HoldSpan {
                    thread,
                    taken: held.taken,
                    from_ns: held.since_ns,
                    to_ns: now,
                });
            }
        }
        Some(held)
    }

    pub(super) fn mistake(
        &mut self,
        kind: MistakeKind,
        object: ObjectIndex,
        thread: ThreadIndex,
        used: UseIndex,
        holder: Option<(ThreadIndex, UseIndex)>,
    ) {
        self.misuse.mistake(Mistake {
            kind,
            object,
            thread,
            used,
            holder,
            count: 1,
            sure: !self.objects.objects[object.0].doubtful,
        });
    }
}
