//! Ends the waits of threads that were cancelled. Such a wait never returns.
//!
//! A cancelled wait at a condition takes the mutex again before the cleanup handlers run (POSIX,
//! "Thread Cancellation Cleanup Handlers"). These most often unlock it.

use super::Replay;
use crate::model::calls::Call;
use crate::model::sync::under_way::Pending;
use crate::primitives::Kind;

impl Replay<'_> {
    /// Ends the wait at a condition whose thread unlocks the mutex, although the wait has not
    /// returned. `outer` is the call that contains the unlock.
    pub(super) fn ends_cancelled_wait(&mut self, call: &Call, outer: Option<u64>, address: u64) {
        let Some(mutex) = self.objects.known(Kind::Mutex, address) else {
            return;
        };
        if self.holds.held_mut(call.thread, mutex).is_some() {
            return;
        }
        let within = outer.filter(|outer| {
            let pending = self.under_way.own(*outer);
            pending.is_some_and(|pending| {
                pending.primitive.mutex.is_some()
                    && self.misuse.mutexes(pending.object).last() == Some(&mutex)
            })
        });
        if let Some(within) = within
            && !self.glibc
            && let Some(pending) = self.under_way.own_mut(within)
            && !std::mem::replace(&mut pending.released, true)
        {
            return;
        }
        let ended = within.or_else(|| self.under_way.gave_up(call.thread, mutex));
        let Some(pending) = ended.and_then(|number| self.under_way.end(number)) else {
            return;
        };
        if let Some(place) = pending.place {
            self.queues.leave(pending.object, place);
        }
        self.was_cancelled(pending, call.entered_ns);
    }

    /// Counts a wait that was cancelled. If it had given up a mutex, its thread holds that again.
    pub(super) fn was_cancelled(&mut self, mut pending: Box<Pending>, before_ns: u64) {
        self.counts_cancelled(&pending, before_ns);
        self.holds_again(&mut pending, before_ns);
    }

    /// Counts a wait that was cancelled, if it was one.
    pub(super) fn counts_cancelled(&mut self, pending: &Pending, before_ns: u64) {
        let ns = before_ns.saturating_sub(pending.entered_ns);
        if self.has_waited(pending, ns) {
            self.waited(pending, before_ns);
        }
    }
}
