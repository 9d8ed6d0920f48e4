//! Finds semaphores that are used as locks: the threads that take one also give it back.
//!
//! A semaphore has no owner, so only its uses tell a lock from a hand-over between threads.
//! Examples of locks: a POSIX semaphore of value 1, and CPython's `threading.Lock`. Until the
//! recording ends, each semaphore is tracked as if it were a lock.

use foldhash::{HashMap, HashMapExt, HashSet};

use super::long_hold::LongHold;
use super::objects::{Object, ObjectIndex, Objects, UseIndex};
use crate::model::ThreadIndex;
use crate::primitives::Kind;

/// Minimum number of releases by the thread that took the semaphore. CPython's threads hold one
/// until they end, and a joining thread takes it once: that is no lock.
const MIN_RETURNED: u64 = 4;
/// The fraction `1 / EXCEPTION_DIVISOR` of a lock's uses may look like a hand-over.
const EXCEPTION_DIVISOR: u64 = 10;
/// Maximum time from a wake-up to the next wait of a thread that found the semaphore taken again.
const MAX_RETRY_NS: u64 = 50_000;

/// A thread's possession of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Possession {
    pub(super) thread: ThreadIndex,
    /// The use that took it.
    pub(super) taken: UseIndex,
    pub(super) since_ns: u64,
    /// Number of events of the thread before.
    pub(super) events: u64,
    /// The first wait meanwhile: the use and the thread.
    pub(super) waiter: Option<(UseIndex, ThreadIndex)>,
}

impl Possession {
    pub(super) fn new(thread: ThreadIndex, taken: UseIndex, ns: u64, events: u64) -> Possession {
        Possession {
            thread,
            taken,
            since_ns: ns,
            events,
            waiter: None,
        }
    }
}

/// The latest known state of a semaphore.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Events are missing, or none was recorded yet.
    #[default]
    Unknown,
    Free,
    Taken(Possession),
}

/// A thread's last acquisition. A thread that was woken may find the semaphore taken by a thread
/// that did not wait. Then it waits again at once, and this acquisition did not happen.
#[derive(Clone, Copy, Debug)]
struct Acquisition {
    since_ns: u64,
    /// Another thread seemed to have the semaphore too.
    second: bool,
    /// Other threads posted it meanwhile.
    passed_over: u64,
}

/// The recorded uses of a semaphore.
#[derive(Debug, Default)]
struct Uses {
    state: State,
    /// Number of acquisitions.
    taken: u64,
    /// Number of acquisitions while another thread had it.
    taken_twice: u64,
    /// Number of releases by the thread that had it.
    returned: u64,
    /// Number of releases by other threads, by thread.
    by_others: HashMap<ThreadIndex, u64>,
    /// The part of these in which the thread that had it did not release it.
    passed_over: u64,
    /// Threads that took it.
    takers: HashSet<ThreadIndex>,
    /// The last acquisition of each thread that has not posted since, if only waits are recorded.
    last: HashMap<ThreadIndex, Acquisition>,
    /// Only waits and the wake-ups that end them were recorded.
    waits_only: bool,
}

impl Uses {
    fn forget(&mut self) {
        self.state = State::Unknown;
        self.last.clear();
    }

    fn is_lock(&self) -> bool {
        let few = |part: u64, all: u64| part.saturating_mul(EXCEPTION_DIVISOR) <= all;
        let others: u64 = self.by_others.values().sum();
        let posts = self.returned + others;
        if self.takers.len() < 2 || !few(self.taken_twice, self.taken) {
            return false;
        }
        if !self.waits_only {
            return self.returned >= MIN_RETURNED && few(others, posts);
        }
        // A thread that takes a free semaphore makes no system call. So a release can seem to come
        // from a thread that did not have the semaphore. But that thread takes it at other times,
        // and no other thread has it at that moment.
        let by_others = self.by_others.iter();
        let strangers = by_others.filter(|(thread, _)| !self.takers.contains(thread));
        let strangers: u64 = strangers.map(|(_, count)| count).sum();
        posts >= MIN_RETURNED && few(strangers + self.passed_over, posts)
    }

    /// The thread waits again. Takes back its last acquisition if it found the semaphore taken.
    fn retries(&mut self, thread: ThreadIndex, now: u64) {
        let Some(last) = self.last.remove(&thread) else {
            return;
        };
        if now.saturating_sub(last.since_ns) <= MAX_RETRY_NS {
            self.taken -= 1;
            self.taken_twice -= u64::from(last.second);
            self.passed_over -= last.passed_over;
        }
    }
}

/// All semaphores of a recording.
#[derive(Debug, Default)]
pub(super) struct Semaphores {
    /// Calls that post are recorded, so their system calls need not be counted.
    pub(super) posts_are_recorded: bool,
    uses: HashMap<ObjectIndex, Uses>,
}

impl Semaphores {
    /// A thread has taken a semaphore. `waits_only` is true if only its wait was recorded.
    pub(super) fn took(&mut self, object: ObjectIndex, by: Possession, waits_only: bool) {
        let uses = self.uses.entry(object).or_default();
        uses.waits_only |= waits_only;
        uses.taken += 1;
        uses.takers.insert(by.thread);
        let second = matches!(uses.state, State::Taken(_));
        uses.taken_twice += u64::from(second);
        if waits_only {
            let acquisition = Acquisition {
                since_ns: by.since_ns,
                second,
                passed_over: 0,
            };
            uses.last.insert(by.thread, acquisition);
        }
        uses.state = State::Taken(by);
    }

    /// A thread begins to wait for a semaphore.
    pub(super) fn waits(
        &mut self,
        object: ObjectIndex,
        used: UseIndex,
        thread: ThreadIndex,
        now: u64,
    ) {
        let Some(uses) = self.uses.get_mut(&object) else {
            return;
        };
        uses.retries(thread, now);
        let State::Taken(possession) = &mut uses.state else {
            return;
        };
        if possession.thread != thread {
            possession.waiter.get_or_insert((used, thread));
            return;
        }
        if !uses.waits_only {
            // The holder of a lock does not wait for it.
            uses.taken_twice += 1;
            return;
        }
        // It was woken and did not get the semaphore, or its release made no system call.
        uses.state = State::Free;
    }

    /// A thread posts a semaphore. Returns the possession that this ends, if the thread had taken
    /// the semaphore itself.
    pub(super) fn posts(&mut self, object: ObjectIndex, thread: ThreadIndex) -> Option<Possession> {
        let uses = self.uses.entry(object).or_default();
        uses.last.remove(&thread);
        match std::mem::replace(&mut uses.state, State::Free) {
            State::Taken(possession) if possession.thread == thread => {
                uses.returned += 1;
                (!uses.waits_only).then_some(possession)
            }
            State::Unknown => None,
            before => {
                *uses.by_others.entry(thread).or_default() += 1;
                if let State::Taken(possession) = before
                    && let Some(acquisition) = uses.last.get_mut(&possession.thread)
                {
                    acquisition.passed_over += 1;
                    uses.passed_over += 1;
                }
                None
            }
        }
    }

    /// Events of semaphores are missing.
    pub(super) fn forget(&mut self) {
        self.uses.values_mut().for_each(Uses::forget);
    }

    /// A semaphore no longer exists, or begins anew.
    pub(super) fn forget_object(&mut self, object: ObjectIndex) {
        self.uses.get_mut(&object).map(Uses::forget);
    }

    /// Marks the semaphores that are locks, and removes the holds of all others.
    pub(super) fn assign_to(&mut self, objects: &mut Objects) {
        let Objects { objects, uses, .. } = objects;
        for (index, object) in objects.iter_mut().enumerate() {
            if object.kind != Kind::Sem {
                continue;
            }
            let recorded = self.uses.get(&ObjectIndex(index));
            object.used_as_lock = recorded.is_some_and(Uses::is_lock);
            if !object.used_as_lock {
                clear(object);
                for used in &object.uses {
                    uses[used.0].holds = super::Histogram::default();
                }
            }
        }
        self.uses = HashMap::new();
    }
}

fn clear(object: &mut Object) {
    object.holds = super::Histogram::default();
    object.hold_events = 0;
    object.taken = 0;
    object.longest_hold = None::<LongHold>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: ObjectIndex = ObjectIndex(0);
    const ONE: ThreadIndex = ThreadIndex(1);
    const TWO: ThreadIndex = ThreadIndex(2);

    fn took(semaphores: &mut Semaphores, thread: ThreadIndex, ns: u64, waits_only: bool) {
        let possession = Possession::new(thread, UseIndex(0), ns, 0);
        semaphores.took(LOCK, possession, waits_only);
    }

    fn is_lock(semaphores: &Semaphores) -> bool {
        semaphores.uses[&LOCK].is_lock()
    }

    #[test]
    fn threads_that_post_what_they_took_use_a_lock() {
        let mut semaphores = Semaphores::default();
        for round in 0..3 {
            for thread in [ONE, TWO] {
                took(&mut semaphores, thread, round, false);
                semaphores.posts(LOCK, thread);
            }
        }
        assert!(is_lock(&semaphores));
        // Then each is posted by the other thread.
        for round in 0..3 {
            for (thread, other) in [(ONE, TWO), (TWO, ONE)] {
                took(&mut semaphores, thread, round, false);
                semaphores.posts(LOCK, other);
            }
        }
        assert!(!is_lock(&semaphores));
    }

    #[test]
    fn a_semaphore_that_ends_with_its_thread_is_no_lock() {
        let mut semaphores = Semaphores::default();
        for thread in [ONE, TWO] {
            took(&mut semaphores, thread, 0, false);
            semaphores.posts(LOCK, thread);
        }
        assert!(!is_lock(&semaphores));
    }

    #[test]
    fn a_semaphore_of_more_than_one_seat_is_no_lock() {
        let mut semaphores = Semaphores::default();
        for round in 0..9 {
            took(&mut semaphores, ONE, round, false);
            took(&mut semaphores, TWO, round, false);
            semaphores.posts(LOCK, TWO);
            semaphores.posts(LOCK, ONE);
        }
        assert!(!is_lock(&semaphores));
    }

    /// CPython's queues hold such a semaphore while they are empty. Threads that wait for work take
    /// and post it, but the thread that brings work posts it too.
    #[test]
    fn a_semaphore_that_tells_of_work_is_no_lock() {
        let mut semaphores = Semaphores::default();
        for round in 0..20 {
            let now = round * 1_000_000;
            for thread in [ONE, TWO] {
                semaphores.waits(LOCK, UseIndex(0), thread, now);
            }
            semaphores.posts(LOCK, ThreadIndex(0));
            took(&mut semaphores, ONE, now + 200_000, true);
            semaphores.posts(LOCK, ONE);
            took(&mut semaphores, TWO, now + 300_000, true);
        }
        assert!(!is_lock(&semaphores));
        // If all calls are recorded, the thread that found the queue empty waits for itself.
        let mut semaphores = Semaphores::default();
        for round in 0..20 {
            for thread in [ONE, TWO] {
                took(&mut semaphores, thread, round, false);
                semaphores.waits(LOCK, UseIndex(0), thread, round);
                semaphores.posts(LOCK, thread);
            }
        }
        assert!(!is_lock(&semaphores));
    }

    /// A thread that posts a lock takes it again before the thread that it woke.
    #[test]
    fn a_lock_that_its_last_owner_takes_again_is_a_lock() {
        for passed_over in [false, true] {
            let mut semaphores = Semaphores::default();
            for round in 0..30 {
                let now = round * 1_000_000;
                semaphores.posts(LOCK, ONE);
                took(&mut semaphores, TWO, now + 500_000, true);
                // It waits again at once, or it has the semaphore when the other thread posts it.
                if !passed_over {
                    semaphores.waits(LOCK, UseIndex(0), TWO, now + 520_000);
                }
            }
            took(&mut semaphores, ONE, 40_000_000, true);
            semaphores.posts(LOCK, ONE);
            assert_eq!(is_lock(&semaphores), !passed_over);
        }
    }

    /// Only waits and wake-ups are recorded.
    #[test]
    fn wakers_of_a_lock_wait_for_it_too() {
        for stranger in [false, true] {
            let mut semaphores = Semaphores::default();
            for round in 0..6 {
                let now = round * 1_000_000;
                took(&mut semaphores, ONE, now, true);
                semaphores.waits(LOCK, UseIndex(0), TWO, now + 1);
                let poster = if stranger { ThreadIndex(0) } else { ONE };
                semaphores.posts(LOCK, poster);
                took(&mut semaphores, TWO, now + 500_000, true);
                semaphores.waits(LOCK, UseIndex(0), ONE, now + 500_001);
                let poster = if stranger { ThreadIndex(0) } else { TWO };
                semaphores.posts(LOCK, poster);
            }
            assert_eq!(is_lock(&semaphores), !stranger);
        }
    }
}
