//! Follows the system calls in which a call of a primitive sleeps.

use super::Replay;
use crate::model::calls::Call;
use crate::model::sync::objects::ObjectIndex;
use crate::model::sync::under_way::Under;
use crate::primitives::{self, Kind, Operation};

/// Offset behind the words of a mutex at which a C library sleeps: glibc uses the first word, musl
/// the second.
const MUTEX_WORDS: u64 = 8;

impl Replay<'_> {
    /// Notes that a call sleeps in the kernel.
    pub(super) fn sleeps(&mut self, number: u64, call: &Call) {
        if let Some(mutex) = self.mutex_taken_again(number, call) {
            return self.waits_for_mutex(number, mutex, call.entered_ns);
        }
        let Some(pending) = self.under_way.own_mut(number) else {
            return;
        };
        pending.slept = true;
        if !pending.queued {
            pending.queued = true;
            let object = pending.object;
            pending.place = self.queues.join(object);
        }
    }

    /// The mutex at which a wait at a condition sleeps, because another thread holds it.
    fn mutex_taken_again(&self, number: u64, call: &Call) -> Option<ObjectIndex> {
        let pending = self.under_way.own(number)?;
        let mutex = *self.misuse.mutexes(pending.object).last()?;
        let offset = (call.args.first()?).wrapping_sub(self.objects.objects[mutex.0].address);
        (pending.primitive.kind == Kind::Cond && offset < MUTEX_WORDS).then_some(mutex)
    }

    /// The wait at a condition is over. From now on, the call waits for the mutex like a lock call.
    fn waits_for_mutex(&mut self, number: u64, mutex: ObjectIndex, now: u64) {
        let lock = primitives::find("pthread_mutex_lock");
        let pending = lock.zip(self.under_way.end(number));
        let Some((primitive, mut pending)) = pending else {
            return;
        };
        let thread = pending.thread;
        if let Some(place) = pending.place {
            self.queues.leave(pending.object, place);
        }
        if pending.slept {
            self.waited(&pending, now);
        }
        let path = self.objects.uses[pending.used.0].path;
        let identity = self.identity(thread);
        let used = self
            .objects
            .used(mutex, Operation::Lock, path, (thread, identity), true);
        let holder = self.waits_behind(mutex, used, thread, false);
        pending.primitive = primitive;
        pending.object = mutex;
        pending.used = used;
        pending.entered_ns = now;
        pending.timed = false;
        pending.timed_out = false;
        pending.holder = holder.map(|(holder, taken)| (holder, Some(taken)));
        pending.queued = true;
        pending.place = self.queues.join(mutex);
        pending.slept = true;
        pending.ended = None;
        pending.stale = None;
        self.under_way.insert(number, Under::Own(pending));
    }
}
