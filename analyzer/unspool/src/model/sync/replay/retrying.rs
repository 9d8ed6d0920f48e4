//! Joins the system calls of one lock call, where only system calls are recorded.
//!
//! A thread that is woken may find the lock taken again. Then it waits again, in the same lock
//! call. The system calls of two lock calls look alike, but there is a wake between them: a thread
//! that has waited for a lock marks it as contended when it gets it, and so its unlock wakes
//! others. That holds for glibc's mutexes and internal locks, and for Rust's `Mutex`. It does not
//! hold for musl's mutexes, for locks that the kernel hands over, or for read-write locks.

use super::Replay;
use crate::model::calls::{Call, Calls, PathId, futex};
use crate::model::sync::under_way::{Pending, Under};
use crate::primitives::{Kind, Operation};

/// A wait whose system call has returned. The thread may wait again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    number: u64,
    word: u64,
    path: PathId,
}

impl Replay<'_> {
    /// True if the thread may wait again in the same lock call, and its next event will show it.
    pub(super) fn may_try_again(&self, pending: &Pending, call: &Call) -> bool {
        let primitive = pending.primitive;
        pending.alone
            && !pending.timed_out
            && (primitive.kind, primitive.operation) == (Kind::Mutex, Operation::Lock)
            && (self.glibc || primitive.is_of_a_language())
            && futex::expected(&call.args).is_some()
            && self.wakes.are_certain(call.entered_ns)
    }

    /// Keeps a wait until the thread's next event.
    pub(super) fn may_go_on(&mut self, mut pending: Box<Pending>, call: &Call, left_ns: u64) {
        let Some(&word) = call.args.first() else {
            return;
        };
        pending.returned_ns = Some(left_ns);
        self.under_way.insert(call.number, Under::Own(pending));
        let attempt = Attempt {
            number: call.number,
            word,
            path: call.path,
        };
        self.attempts.insert(call.thread, attempt);
    }

    /// Continues the thread's last wait if this call belongs to it. Otherwise that wait is over.
    pub(super) fn tries_again(&mut self, calls: &Calls, call: &Call) -> bool {
        let Some(last) = self.attempts.remove(&call.thread) else {
            return false;
        };
        let waits = calls.function(call.function).futex
            && futex::waits(&call.args)
            && futex::expected(&call.args).is_some();
        let is_same = call.args.first() == Some(&last.word) && call.path == last.path;
        let pending = match waits && is_same {
            true => self.under_way.end(last.number),
            false => None,
        };
        let Some(mut pending) = pending else {
            self.is_over(last);
            return false;
        };
        let address = self.objects.objects[pending.object.0].address;
        pending.owner = self.owner(call, pending.primitive, address);
        pending.place = self.queues.join_again(pending.object, pending.place);
        pending.ended = None;
        pending.stale = None;
        self.wakes.wait(last.word);
        self.stale_waits.wait(last.word);
        self.tenures
            .wait_again(pending.object, call.entered_ns, pending.owner);
        self.under_way.insert(call.number, Under::Own(pending));
        true
    }

    /// Ends all waits that might go on, because the next event of their threads may be missing.
    pub(super) fn end_attempts(&mut self) {
        while let Some((_, attempt)) = self.attempts.pop_first() {
            self.is_over(attempt);
        }
    }

    fn is_over(&mut self, attempt: Attempt) {
        let pending = self.under_way.end(attempt.number);
        if let Some(pending) = pending
            && let Some(returned_ns) = pending.returned_ns
        {
            self.waited(&pending, returned_ns);
        }
    }
}
