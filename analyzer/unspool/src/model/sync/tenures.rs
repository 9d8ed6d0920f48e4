//! Finds the holders of a contended lock over time, where only waits and wakes are recorded.
//!
//! While threads wait for a lock, each unlock makes a system call that wakes one of them. So a lock
//! that a thread begins to wait for is held by the thread that makes the next wake. Between a wake
//! and the next wait, the lock may be free, or others may take and release it without a system
//! call.
//!
//! Readers hold a read-write lock together, and only the last one of them wakes a waiting writer.
//! Others may have held it before.

use std::collections::{BTreeMap, VecDeque};

use foldhash::HashMap;

use super::objects::ObjectIndex;
use crate::model::ThreadIndex;
use crate::model::calls::PathId;
use crate::primitives::{Kind, Operation};

/// Maximum number of tenures kept per lock.
const MAX_TENURES: usize = 256;

/// A time in which a thread held a lock that others waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    pub(super) thread: ThreadIndex,
    /// Start of the tenure; the thread may have held the lock before.
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Where the thread released the lock, unless its end did.
    pub(super) given_up: Option<PathId>,
    /// True if other threads may have held the lock for a part of this time.
    pub(super) may_be_shared: bool,
}

/// All locks that threads wait for.
#[derive(Debug, Default)]
pub(super) struct Tenures {
    locks: HashMap<ObjectIndex, Lock>,
    /// The locks, by the futex word that threads wait at.
    words: HashMap<u64, ObjectIndex>,
}

#[derive(Debug, Default)]
struct Lock {
    kind: Option<Kind>,
    waiting: usize,
    /// Start of the first wait since the last wake or gap: the lock was held then.
    held_ns: Option<u64>,
    /// That wait was one for a writer.
    for_writer: bool,
    /// The owner by the lock's own memory.
    owner: Option<ThreadIndex>,
    /// End times of the waits of threads that may hold the lock alone since.
    returned: HashMap<ThreadIndex, u64>,
    past: VecDeque<Tenure>,
}

/// True for locks and semaphores, the objects that [`Tenures`] covers.
pub(super) fn are_of(kind: Kind) -> bool {
    kind.is_lock() || kind == Kind::Sem
}

impl Tenures {
    /// Notes that a thread begins to wait at a lock's word. `owner` is the owner by the lock's
    /// memory.
    pub(super) fn wait(
        &mut self,
        lock: ObjectIndex,
        (kind, operation): (Kind, Operation),
        word: u64,
        now: u64,
        owner: Option<ThreadIndex>,
    ) {
        self.words.insert(word, lock);
        let lock = self.locks.entry(lock).or_default();
        lock.kind = Some(kind);
        if lock.waiting == 0 {
            lock.held_ns = None;
            lock.owner = None;
            lock.returned.clear();
            lock.past.clear();
        }
        // A reader may also wait for a writer that was woken and has not taken the free lock yet.
        let reads = operation == Operation::ReadLock;
        if lock.held_ns.is_none() && (!reads || owner.is_some() || lock.waiting == 0) {
            lock.held_ns = Some(now);
            lock.for_writer = reads;
        }
        lock.waiting += 1;
        lock.owner = lock.owner.or(owner);
    }

    /// Notes that a thread which was woken waits again, because the lock was taken before it.
    pub(super) fn wait_again(&mut self, lock: ObjectIndex, now: u64, owner: Option<ThreadIndex>) {
        if let Some(lock) = self.locks.get_mut(&lock) {
            lock.held_ns.get_or_insert(now);
            lock.owner = lock.owner.or(owner);
        }
    }

    /// A thread releases a lock and wakes a waiter at its word. Returns the tenure that ends, if
    /// its thread is known.
    pub(super) fn wake(
        &mut self,
        word: u64,
        thread: ThreadIndex,
        given_up: PathId,
        now: u64,
    ) -> Option<(ObjectIndex, Tenure)> {
        let index = *self.words.get(&word)?;
        let tenure = self.ends(index, thread, Some(given_up), now)?;
        Some((index, tenure))
    }

    /// A thread's end releases its robust mutex, by the mutex's memory.
    pub(super) fn owner_ends(
        &mut self,
        lock: ObjectIndex,
        is_ended: impl FnOnce(ThreadIndex) -> Option<u64>,
    ) -> Option<Tenure> {
        let owner = self.locks.get(&lock)?.owner?;
        let ended_ns = is_ended(owner)?;
        self.ends(lock, owner, None, ended_ns)
    }

    fn ends(
        &mut self,
        index: ObjectIndex,
        thread: ThreadIndex,
        given_up: Option<PathId>,
        now: u64,
    ) -> Option<Tenure> {
        let lock = self.locks.get_mut(&index)?;
        if lock.waiting == 0 {
            return None;
        }
        let held_ns = lock.held_ns.take();
        let owner = lock.owner.take();
        if owner.is_some_and(|owner| owner != thread) {
            // The lock changed hands unseen.
            return None;
        }
        // A thread that waited holds the lock since its return at most. Before, it may have waited
        // for a processor.
        let returned_ns = lock.returned.remove(&thread);
        let is_alone = owner.is_some() || returned_ns.is_some() || lock.for_writer;
        let tenure = Tenure {
            thread,
            from_ns: held_ns.max(returned_ns)?,
            to_ns: now,
            given_up,
            may_be_shared: lock.kind == Some(Kind::Rwlock) && !is_alone,
        };
        if lock.past.len() == MAX_TENURES {
            lock.past.pop_front();
        }
        lock.past.push_back(tenure);
        Some(tenure)
    }

    /// Notes a wake by a thread that does not release the lock at this word. A reader that takes a
    /// lock wakes those that wait to read.
    pub(super) fn wake_without_release(&mut self, word: u64) {
        if let Some(lock) = self.lock_at(word) {
            lock.held_ns = None;
            lock.owner = None;
        }
    }

    /// Notes that a wait did not sleep, because the lock was released as it began.
    pub(super) fn did_not_sleep(&mut self, word: u64, from_ns: u64) {
        let lock = self.lock_at(word);
        if let Some(lock) = lock.filter(|lock| lock.held_ns == Some(from_ns)) {
            lock.held_ns = None;
        }
    }

    fn lock_at(&mut self, word: u64) -> Option<&mut Lock> {
        self.locks.get_mut(self.words.get(&word)?)
    }

    /// A thread's wait is over: returns the longest tenure of the thread whose tenures took most of
    /// its time.
    pub(super) fn leave(
        &mut self,
        lock: ObjectIndex,
        (thread, operation): (ThreadIndex, Operation),
        (from_ns, to_ns): (u64, u64),
    ) -> Option<Tenure> {
        let lock = self.locks.get_mut(&lock)?;
        lock.waiting = lock.waiting.saturating_sub(1);
        if operation != Operation::ReadLock {
            lock.returned.insert(thread, to_ns);
        }
        let part = |tenure: &Tenure| {
            let end = tenure.to_ns.min(to_ns);
            end.saturating_sub(tenure.from_ns.max(from_ns))
        };
        let during = || {
            let past = lock.past.iter().rev();
            past.take_while(|tenure| tenure.to_ns > from_ns)
        };
        let mut by_thread: BTreeMap<ThreadIndex, u64> = BTreeMap::new();
        for tenure in during() {
            *by_thread.entry(tenure.thread).or_default() += part(tenure);
        }
        let known: u64 = by_thread.values().sum();
        let (holder, held_ns) = by_thread.into_iter().max_by_key(|(_, ns)| *ns)?;
        let own = during().filter(|tenure| tenure.thread == holder);
        let longest = own.max_by_key(|tenure| part(tenure))?;
        // The holder in the rest of the time is unknown.
        let rest = to_ns.saturating_sub(from_ns).saturating_sub(known);
        (held_ns > rest).then_some(*longest)
    }

    /// Notes that a wait has ended unseen.
    pub(super) fn lose(&mut self, lock: ObjectIndex) {
        if let Some(lock) = self.locks.get_mut(&lock) {
            lock.waiting = lock.waiting.saturating_sub(1);
        }
    }

    /// Forgets a lock that no longer exists.
    pub(super) fn forget_object(&mut self, lock: ObjectIndex) {
        if self.locks.remove(&lock).is_some() {
            self.words.retain(|_, other| *other != lock);
        }
    }

    /// Forgets the tenures, because wakes are missing up to the next event.
    pub(super) fn forget(&mut self) {
        for lock in self.locks.values_mut() {
            lock.past.clear();
            lock.returned.clear();
            lock.owner = None;
            lock.held_ns = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: ObjectIndex = ObjectIndex(0);
    const WORD: u64 = 0xa004;
    const MUTEX: (Kind, Operation) = (Kind::Mutex, Operation::Lock);
    const READ: (Kind, Operation) = (Kind::Rwlock, Operation::ReadLock);
    const WRITE: (Kind, Operation) = (Kind::Rwlock, Operation::WriteLock);
    const READER: ThreadIndex = ThreadIndex(1);
    const FIRST: ThreadIndex = ThreadIndex(2);
    const SECOND: ThreadIndex = ThreadIndex(3);
    const PATH: PathId = PathId(7);

    #[test]
    fn a_wait_is_charged_to_the_longest_holder() {
        let mut tenures = Tenures::default();
        tenures.wait(LOCK, MUTEX, WORD, 100, None);
        tenures.wait(LOCK, MUTEX, WORD, 200, None);
        // A thread holds the lock for a long time and passes it to a waiter, which releases it at
        // once.
        let (lock, long) = tenures.wake(WORD, READER, PATH, 1000).unwrap();
        assert_eq!(lock, LOCK);
        assert_eq!((long.from_ns, long.to_ns), (100, 1000));
        assert_eq!(
            tenures.leave(LOCK, (FIRST, Operation::Lock), (100, 1001)),
            Some(long)
        );
        let (_, short) = tenures.wake(WORD, FIRST, PATH, 1010).unwrap();
        // It had the lock from its return on.
        assert_eq!((short.from_ns, short.to_ns), (1001, 1010));
        assert_eq!(
            tenures.leave(LOCK, (SECOND, Operation::Lock), (200, 1011)),
            Some(long)
        );
    }

    #[test]
    fn a_wait_for_many_holds_is_charged_to_their_thread() {
        let mut tenures = Tenures::default();
        tenures.wait(LOCK, MUTEX, WORD, 0, None);
        // Each time, the waiter finds the lock taken again.
        for n in 1..=10 {
            let (_, tenure) = tenures.wake(WORD, READER, PATH, 100 * n - 10).unwrap();
            assert_eq!(tenure.to_ns - tenure.from_ns, 90);
            tenures.wait_again(LOCK, 100 * n, None);
        }
        let longest = tenures
            .leave(LOCK, (FIRST, Operation::Lock), (0, 1000))
            .unwrap();
        assert_eq!(longest.thread, READER);
        assert_eq!(longest.to_ns - longest.from_ns, 90);
    }

    #[test]
    fn a_free_lock_is_held_by_nobody() {
        let mut tenures = Tenures::default();
        tenures.wait(LOCK, MUTEX, WORD, 100, None);
        tenures.wait(LOCK, MUTEX, WORD, 200, None);
        tenures.wake(WORD, READER, PATH, 300).unwrap();
        // The woken thread gets a processor late. Others take and release the lock meanwhile,
        // without a system call. It finds the lock held, and sleeps again.
        tenures.leave(LOCK, (FIRST, Operation::Lock), (100, 900));
        tenures.wait(LOCK, MUTEX, WORD, 910, None);
        let (_, short) = tenures.wake(WORD, READER, PATH, 920).unwrap();
        assert_eq!((short.from_ns, short.to_ns), (910, 920));
        // Nothing says since when the next one has held it.
        assert_eq!(tenures.wake(WORD, READER, PATH, 990), None);
        // A wait that began when the lock was free does not either.
        tenures.wait(LOCK, MUTEX, WORD, 1000, None);
        tenures.did_not_sleep(WORD, 1000);
        assert_eq!(tenures.wake(WORD, READER, PATH, 1100), None);
    }

    #[test]
    fn contradictory_or_missing_events_give_no_tenure() {
        let mut tenures = Tenures::default();
        tenures.wait(LOCK, MUTEX, WORD, 100, Some(FIRST));
        assert_eq!(tenures.wake(WORD, READER, PATH, 1000), None);
        assert_eq!(
            tenures.leave(LOCK, (FIRST, Operation::Lock), (100, 1001)),
            None
        );
        tenures.wait(LOCK, MUTEX, WORD, 2000, Some(FIRST));
        tenures.forget();
        // The gap may have lasted until now.
        assert_eq!(tenures.wake(WORD, READER, PATH, 3000), None);
        assert_eq!(
            tenures.leave(LOCK, (FIRST, Operation::Lock), (2000, 3001)),
            None
        );
        tenures.wait(LOCK, MUTEX, WORD, 3500, None);
        tenures.lose(LOCK);
        // Without a waiting thread there are no wakes.
        assert_eq!(tenures.wake(WORD, READER, PATH, 4000), None);
    }

    /// The next thread that reads may release a lock without a system call.
    #[test]
    fn the_last_reader_may_not_have_held_the_lock_alone() {
        let mut tenures = Tenures::default();
        tenures.wait(LOCK, WRITE, WORD, 100, None);
        let (_, tenure) = tenures.wake(WORD, READER, PATH, 400).unwrap();
        assert_eq!((tenure.from_ns, tenure.to_ns), (100, 400));
        assert!(tenure.may_be_shared);
        // The writer that it woke holds it alone, as another does by the lock's memory.
        tenures.wait(LOCK, READ, WORD, 405, None);
        tenures.leave(LOCK, (FIRST, Operation::WriteLock), (100, 410));
        let (_, tenure) = tenures.wake(WORD, FIRST, PATH, 500).unwrap();
        assert_eq!((tenure.from_ns, tenure.may_be_shared), (410, false));
        tenures.leave(LOCK, (SECOND, Operation::ReadLock), (405, 510));
        for (does, owner) in [(READ, None), (WRITE, Some(SECOND))] {
            tenures.wait(LOCK, does, WORD, 600, owner);
            let (_, tenure) = tenures.wake(WORD, SECOND, PATH, 700).unwrap();
            assert_eq!((tenure.from_ns, tenure.may_be_shared), (600, false));
            tenures.leave(LOCK, (FIRST, does.1), (600, 710));
        }
    }

    #[test]
    fn a_reader_may_wait_for_a_free_lock() {
        let mut tenures = Tenures::default();
        tenures.wait(LOCK, WRITE, WORD, 100, None);
        tenures.wake(WORD, READER, PATH, 200).unwrap();
        // The writer does not run yet.
        tenures.wait(LOCK, READ, WORD, 210, None);
        assert_eq!(tenures.wake(WORD, SECOND, PATH, 900), None);
        tenures.wait(LOCK, WRITE, WORD, 1000, None);
        tenures.wake_without_release(WORD);
        assert_eq!(tenures.wake(WORD, SECOND, PATH, 1900), None);
    }
}
