//! Facts that the replay of calls collects for findings: waits that never end, and misuse of
//! objects.

use std::collections::{HashMap, HashSet};

use super::objects::{ObjectIndex, UseIndex};
use crate::model::ThreadIndex;
use crate::primitives::Operation;

/// Maximum number of distinct mistakes that are kept.
const MAX_MISTAKES: usize = 1000;
/// Maximum number of distinct ways to signal one condition variable that are kept.
const MAX_SIGNALS: usize = 64;
/// Maximum number of recently released locks that are kept per thread.
const MAX_GIVEN_UP: usize = 16;

/// The facts collected so far.
#[derive(Debug, Default)]
pub(super) struct Misuse {
    pub(super) still: Vec<StillWaiting>,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) signals: HashMap<ObjectIndex, Vec<Signalled>>,
    /// The mutexes that waits at each condition release, the latest one last.
    mutexes: HashMap<ObjectIndex, Vec<ObjectIndex>>,
    /// The locks that each thread released last.
    given_up: HashMap<ThreadIndex, GivenUp>,
    /// The locks that each thread has released at least once.
    released: HashSet<(ThreadIndex, ObjectIndex)>,
    /// When a thread last signalled a condition, counted in events of this type.
    last_signal: HashMap<(ThreadIndex, ObjectIndex), u64>,
    now: u64,
}

/// A thread's most recently released locks and when it released them, in order of time.
#[derive(Debug, Default)]
struct GivenUp {
    locks: Vec<(ObjectIndex, u64)>,
    /// The latest release that is no longer in the list.
    forgotten: u64,
}

impl Misuse {
    /// Adds a mistake; a repeated one at the same place is only counted.
    pub(super) fn mistake(&mut self, new: Mistake) {
        let same =
            |m: &&mut Mistake| (m.kind, m.object, m.used) == (new.kind, new.object, new.used);
        if let Some(known) = self.mistakes.iter_mut().find(same) {
            known.count += 1;
            known.sure |= new.sure;
        } else if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(new);
        }
    }

    /// Whether a thread has released a lock before. Notes that it releases it now.
    pub(super) fn has_released(&mut self, thread: ThreadIndex, lock: ObjectIndex) -> bool {
        !self.released.insert((thread, lock))
    }

    /// Notes that a thread releases a lock.
    pub(super) fn gave_up(&mut self, thread: ThreadIndex, lock: ObjectIndex) {
        self.now += 1;
        let given_up = self.given_up.entry(thread).or_default();
        let locks = &mut given_up.locks;
        if let Some(at) = locks.iter().rposition(|(known, _)| *known == lock) {
            locks.remove(at);
        } else if locks.len() == MAX_GIVEN_UP {
            given_up.forgotten = locks.remove(0).1;
        }
        locks.push((lock, self.now));
    }

    /// Notes that a wait at a condition releases a mutex.
    pub(super) fn waits(&mut self, condition: ObjectIndex, mutex: ObjectIndex) {
        let mutexes = self.mutexes.entry(condition).or_default();
        if mutexes.last() != Some(&mutex) {
            mutexes.retain(|other| *other != mutex);
            mutexes.push(mutex);
        }
    }

    /// The mutexes that waits at a condition have released, the latest one last.
    pub(super) fn mutexes(&self, condition: ObjectIndex) -> &[ObjectIndex] {
        self.mutexes.get(&condition).map_or(&[], Vec::as_slice)
    }

    /// Notes that a thread signals a condition while it holds `held`.
    pub(super) fn signal(
        &mut self,
        condition: ObjectIndex,
        thread: ThreadIndex,
        used: UseIndex,
        held: impl Iterator<Item = ObjectIndex>,
    ) {
        self.now += 1;
        let last = self.last_signal.insert((thread, condition), self.now);
        let last = last.unwrap_or(0);
        let mut had: Vec<ObjectIndex> = held.collect();
        let mut complete = true;
        if let Some(given_up) = self.given_up.get(&thread) {
            let since = given_up.locks.iter().filter(|(_, at)| *at > last);
            had.extend(since.map(|(lock, _)| *lock));
            complete = given_up.forgotten <= last;
        }
        let mutexes = self.mutexes(condition);
        if !mutexes.is_empty() {
            had.retain(|lock| mutexes.contains(lock));
        }
        had.sort_unstable();
        had.dedup();
        let new = Signalled {
            used,
            thread,
            had,
            complete,
            count: 1,
        };
        let seen = self.signals.entry(condition).or_default();
        let same = |s: &&mut Signalled| {
            (s.used, s.complete) == (new.used, new.complete) && s.had == new.had
        };
        if let Some(known) = seen.iter_mut().find(same) {
            known.count += 1;
        } else if seen.len() < MAX_SIGNALS {
            seen.push(new);
        }
    }
}

/// A thread that still waits when the recording ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct StillWaiting {
    pub(super) thread: ThreadIndex,
    pub(super) object: ObjectIndex,
    pub(super) used: UseIndex,
    pub(super) operation: Operation,
    /// When the thread was last woken, or when the wait began.
    pub(super) since_ns: u64,
    /// True if the wait has a timeout.
    pub(super) timed: bool,
    pub(super) sure: bool,
    /// The owner by the object's memory when the wait began. For a join, the thread to be joined.
    pub(super) owner: Option<ThreadIndex>,
}

/// A misuse of an object, as it happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mistake {
    pub(super) kind: MistakeKind,
    pub(super) object: ObjectIndex,
    pub(super) thread: ThreadIndex,
    pub(super) used: UseIndex,
    /// The holder, and the use that took the object.
    pub(super) holder: Option<(ThreadIndex, UseIndex)>,
    pub(super) count: u64,
    pub(super) sure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MistakeKind {
    Unlock,
    Destroy,
}

/// Signals of a condition from one place, and the locks the thread had held by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signalled {
    pub(super) used: UseIndex,
    pub(super) thread: ThreadIndex,
    /// Locks held at some time since the thread's previous signal of the condition.
    had: Vec<ObjectIndex>,
    /// True if the list `had` is complete.
    complete: bool,
    pub(super) count: u64,
}

impl Signalled {
    /// True if the thread held none of these locks between its previous signal and this one. Then
    /// it cannot have changed the condition's data under one of them.
    pub(super) fn is_without(&self, mutexes: &[ObjectIndex]) -> bool {
        self.complete && !self.had.iter().any(|lock| mutexes.contains(lock))
    }
}
