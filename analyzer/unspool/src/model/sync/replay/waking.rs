//! Finds the thread that ends each wait, from the system calls that wake and that return.

use super::Replay;
use super::holding::lost;
use crate::model::ThreadIndex;
use crate::model::calls::{Call, Calls, futex};
use crate::model::sync::contention::ContendedWait;
use crate::model::sync::long_hold::LongHold;
use crate::model::sync::meaning::in_path;
use crate::model::sync::objects::ObjectIndex;
use crate::model::sync::past_holds::PastHold;
use crate::model::sync::tenures::{self, Tenure};
use crate::model::sync::under_way::Pending;
use crate::model::sync::wakes::{Answer, Ended, Ender};
use crate::primitives::Kind;

/// Error of a wait whose word has another value than the expected one (`EAGAIN`).
const EAGAIN: i32 = -11;

/// Result of a wait whose time limit was reached (`-ETIMEDOUT`).
const ETIMEDOUT: i32 = -110;

/// Time from which a thread's robust mutexes are free to its reported end, at most.
const MAX_EXIT_NS: u64 = 10_000_000;

/// Upper bound of the offset of a thread's end state from its handle.
const THREAD: u64 = 512;

impl Replay<'_> {
    /// Notes a wake call. If it is part of a call that another thread ended, it may only pass that
    /// wake on. In musl, the last thread that leaves a barrier wakes the first.
    pub(super) fn wakes_others(&mut self, calls: &Calls, call: &Call) {
        let (Some(word), Some(count)) = (call.args.first(), futex::wakes(&call.args)) else {
            return;
        };
        let outer = self.under_way.outer(call.within);
        let outer = outer.and_then(|outer| self.under_way.own(outer));
        let by = outer.and_then(|outer| outer.ended).unwrap_or(Ender {
            thread: call.thread,
            path: Some(call.path),
        });
        self.wakes.wake(*word, by, call.entered_ns, count);
        // Recorded calls of sem_post() are counted themselves. Semaphores begin with their word.
        if !self.semaphores.posts_are_recorded
            && let Some(semaphore) = self.objects.known(Kind::Sem, *word)
        {
            self.posts_semaphore(call.thread, semaphore, call.entered_ns);
        }
        match in_path(calls, call.path, false).kind {
            // Most likely it takes the lock itself.
            Kind::Rwlock => self.tenures.wake_without_release(*word),
            _ => self.gives_up_contended(*word, call),
        }
        for late in self.stale_waits.wake(*word, by) {
            if let Some(wait) = late.wait {
                let wait = ContendedWait {
                    waiter: wait.used,
                    holder: None,
                    ended: by.path,
                    identities: (wait.identity, self.identity(by.thread)),
                    threads: (late.thread, by.thread),
                    ns: wait.ns,
                };
                self.contention.add(&wait, []);
            } else if let Some(pending) = self.under_way.own_mut(late.number) {
                pending.ended = pending.ended.or(Some(by));
            }
        }
    }

    /// Notes that a thread which wakes others at a contended lock has held the lock.
    fn gives_up_contended(&mut self, word: u64, call: &Call) {
        let (thread, now) = (call.thread, call.entered_ns);
        let Some((object, tenure)) = self.tenures.wake(word, thread, call.path, now) else {
            return;
        };
        self.had(object, tenure);
    }

    /// Notes a tenure that has ended.
    fn had(&mut self, object: ObjectIndex, tenure: Tenure) {
        let (thread, from_ns, to_ns) = (tenure.thread, tenure.from_ns, tenure.to_ns);
        let hold = PastHold {
            thread,
            from_ns,
            to_ns,
        };
        if !tenure.may_be_shared {
            self.past_holds.add(object, hold);
        }
        let lost = lost(&self.stalls, &self.model.schedule, thread, from_ns, to_ns);
        self.objects.objects[object.0].held_long(LongHold {
            thread,
            taken: None,
            given_up: tenure.given_up,
            may_be_shared: tenure.may_be_shared,
            from_ns: tenure.from_ns,
            ns: tenure.to_ns.saturating_sub(tenure.from_ns),
            stood_ns: lost.stood_ns,
            runnable_ns: lost.runnable_ns,
            events: 0,
            first: None,
            waiting: Vec::new(),
            waited_ns: 0,
            longest_wait: None,
        });
    }

    /// The tenure that took most of a wait at a contended lock.
    pub(super) fn tenure(&mut self, pending: &Pending, to_ns: u64) -> Option<Tenure> {
        let (kind, operation) = (pending.primitive.kind, pending.primitive.operation);
        if !pending.alone || !tenures::are_of(kind) {
            return None;
        }
        self.owner_ended(pending, to_ns);
        let span = (pending.entered_ns, to_ns);
        let waiter = (pending.thread, operation);
        let tenure = self.tenures.leave(pending.object, waiter, span);
        // A thread that posts a semaphore need not have had it.
        tenure.filter(|_| kind.is_lock())
    }

    /// Ends the tenure of a thread that ended as a wait did. The kernel gives its robust mutex up,
    /// and wakes a waiter, shortly before it reports the end.
    fn owner_ended(&mut self, pending: &Pending, to_ns: u64) {
        if pending.primitive.kind != Kind::Mutex || pending.timed_out || pending.ended.is_some() {
            return;
        }
        let threads = &self.model.threads;
        let is_ended = |owner: ThreadIndex| {
            let ended_ns = threads[owner.0].ended_ns?;
            let is_then = ended_ns >= pending.entered_ns && ended_ns <= to_ns + MAX_EXIT_NS;
            is_then.then_some(ended_ns.min(to_ns))
        };
        if let Some(tenure) = self.tenures.owner_ends(pending.object, is_ended) {
            self.had(pending.object, tenure);
        }
    }

    /// Handles the end of a system call that waited. The thread that ended it also ended the
    /// enclosing wait.
    pub(super) fn woken(&mut self, call: &Call) {
        let Some(&word) = call.args.first() else {
            return;
        };
        let result = call.result.map(|result| result as i32);
        let how = match result {
            Some(0) => Ended::Woken,
            Some(EAGAIN) => Ended::Changed,
            _ => Ended::Itself,
        };
        if how == Ended::Changed {
            self.tenures.did_not_sleep(word, call.entered_ns);
        }
        let answer = self.wakes.answer(word, call.entered_ns, how);
        let by = match answer {
            Answer::By(by) => Some(by),
            Answer::Later | Answer::Unknown => None,
        };
        let Some(number) = self.under_way.outer(Some(call.number)) else {
            return;
        };
        let own = self.under_way.own(number);
        let joins = own.is_some_and(|own| own.primitive.kind == Kind::Join);
        // glibc waits until the kernel has cleared the thread's id (pthread_join_common.c).
        let tid = call.args.get(2).filter(|_| joins && self.glibc);
        let joined = tid.and_then(|tid| self.known(tid & 0xffff_ffff, call.entered_ns));
        let joined = joined
            .or(by.map(|by| by.thread))
            .map(|thread| Ender { thread, path: None });
        let Some(pending) = self.under_way.own_mut(number) else {
            return;
        };
        let object = self.objects.objects[pending.object.0].address;
        pending.ended = match pending.primitive.kind {
            // musl's threads then leave the list of threads, whose lock is outside of their data.
            Kind::Join if !self.glibc && word.wrapping_sub(object) >= THREAD => return,
            Kind::Join => joined.filter(|_| how != Ended::Itself),
            _ => by,
        };
        pending.timed_out = result == Some(ETIMEDOUT);
        if answer == Answer::Later && pending.ended.is_none() {
            pending.stale = Some((word, number));
            self.stale_waits.expect(word, call.thread, number);
        }
    }
}
