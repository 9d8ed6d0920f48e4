//! Tracks which threads hold which locks.
//!
//! Separate from the replay of calls, because the two views, by thread and by object, must agree
//! whatever events are missing.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::gaps::{Gaps, Stamp};
use super::objects::{EndedHold, Lost, ObjectIndex, Objects, UseIndex};
use crate::model::ThreadIndex;

/// Maximum number of locks per thread that are tracked. Few threads hold more at a time.
pub(super) const MAX_HELD: usize = 16;

/// A lock that a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) object: ObjectIndex,
    /// The use that took it.
    pub(super) taken: UseIndex,
    /// When its holder called the function that took it.
    pub(super) asked_ns: u64,
    pub(super) since_ns: u64,
    /// True if readers hold it together.
    pub(super) shared: bool,
    /// How often its holder has taken it without giving it up.
    pub(super) depth: u32,
    /// The first wait for it during the hold: the use and the thread.
    pub(super) waiter: Option<(UseIndex, ThreadIndex)>,
    /// Number of events of its holder before the hold.
    pub(super) events: u64,
    /// The gaps in the recording when the lock was taken.
    pub(super) stamp: Stamp,
}

/// All locks that are held at a moment.
#[derive(Debug)]
pub(super) struct Holds {
    /// Locks per thread, in the order of acquisition.
    by_thread: Vec<Vec<Held>>,
    by_object: HashMap<ObjectIndex, Vec<ThreadIndex>>,
    /// Objects that were seen to be released by their last holder.
    free: HashSet<ObjectIndex>,
    /// True if a thread seemed to hold more locks than are tracked.
    pub(super) overflowed: bool,
}

impl Holds {
    pub(super) fn new(threads: usize) -> Holds {
        Holds {
            by_thread: vec![Vec::new(); threads],
            by_object: HashMap::new(),
            free: HashSet::new(),
            overflowed: false,
        }
    }

    /// Locks that a thread holds.
    pub(super) fn of(&self, thread: ThreadIndex) -> &[Held] {
        self.by_thread.get(thread.0).map_or(&[], Vec::as_slice)
    }

    /// Threads that hold an object.
    pub(super) fn holders(&self, object: ObjectIndex) -> &[ThreadIndex] {
        self.by_object.get(&object).map_or(&[], Vec::as_slice)
    }

    /// Marks an object as free after its release was seen.
    pub(super) fn freed(&mut self, object: ObjectIndex) {
        self.free.insert(object);
    }

    /// True if the object was seen to become free.
    pub(super) fn is_free(&self, object: ObjectIndex) -> bool {
        self.free.contains(&object)
    }

    /// Marks the state of an object as unknown.
    pub(super) fn doubt(&mut self, object: ObjectIndex) {
        self.free.remove(&object);
    }

    /// A thread has got an object: removes earlier holders, which released it unseen.
    pub(super) fn push_out(
        &mut self,
        objects: &mut Objects,
        thread: ThreadIndex,
        object: ObjectIndex,
        shared: bool,
    ) {
        let Some(holders) = self.by_object.get_mut(&object) else {
            return;
        };
        let held = &mut self.by_thread;
        let before = holders.len();
        holders.retain(|holder| {
            let stays = *holder == thread
                || shared
                    && held[holder.0]
                        .iter()
                        .any(|h| h.object == object && h.shared);
            if !stays {
                held[holder.0].retain(|h| h.object != object);
            }
            stays
        });
        if holders.len() < before {
            objects.objects[object.0].doubtful = true;
        }
    }

    pub(super) fn take(&mut self, objects: &mut Objects, thread: ThreadIndex, held: Held) {
        self.free.remove(&held.object);
        let holders = self.by_object.entry(held.object).or_default();
        if !holders.contains(&thread) {
            holders.push(thread);
        }
        let all = &mut self.by_thread[thread.0];
        if all.len() == MAX_HELD {
            // The end of the oldest hold was most likely not seen.
            let oldest = all.remove(0);
            self.overflowed = true;
            if let Some(holders) = self.by_object.get_mut(&oldest.object) {
                holders.retain(|holder| *holder != thread);
            }
            objects.objects[oldest.object.0].doubtful = true;
        }
        all.push(held);
    }

    /// Removes a thread's hold on an object and adds up its length. A hold that may really be two,
    /// with events missing in between, is not added.
    #[allow(clippy::too_many_arguments, reason = "the facts of one call")]
    pub(super) fn release(
        &mut self,
        objects: &mut Objects,
        thread: ThreadIndex,
        object: ObjectIndex,
        now: u64,
        events: u64,
        gaps: &Gaps,
        lost: &dyn Fn(u64) -> Lost,
    ) -> Option<Held> {
        let all = self.by_thread.get_mut(thread.0)?;
        let at = all.iter().rposition(|held| held.object == object)?;
        let held = all.remove(at);
        if let Some(holders) = self.by_object.get_mut(&object) {
            holders.retain(|holder| *holder != thread);
        }
        if gaps.may_be_two(objects.objects[object.0].kind, held.stamp) {
            return Some(held);
        }
        let ended = EndedHold {
            thread,
            taken: held.taken,
            from_ns: held.since_ns,
            to_ns: now,
            events: events.saturating_sub(held.events),
            waiter: held.waiter,
        };
        objects.add_hold(object, ended, || lost(held.since_ns));
        Some(held)
    }

    /// Forgets an object that no longer exists.
    pub(super) fn forget(&mut self, object: ObjectIndex) {
        for holder in self.by_object.remove(&object).unwrap_or_default() {
            self.by_thread[holder.0].retain(|held| held.object != object);
        }
        self.free.remove(&object);
    }

    /// Removes a hold whose release was not seen.
    pub(super) fn drop_unseen(&mut self, thread: ThreadIndex, object: ObjectIndex) {
        if let Some(holders) = self.by_object.get_mut(&object) {
            holders.retain(|holder| *holder != thread);
        }
        if let Some(held) = self.by_thread.get_mut(thread.0) {
            held.retain(|held| held.object != object);
        }
    }

    pub(super) fn held_mut(
        &mut self,
        thread: ThreadIndex,
        object: ObjectIndex,
    ) -> Option<&mut Held> {
        let all = self.by_thread.get_mut(thread.0)?;
        all.iter_mut().find(|held| held.object == object)
    }

    /// The first holder of an object, and the use that took it.
    pub(super) fn holder(&self, object: ObjectIndex) -> Option<(ThreadIndex, UseIndex)> {
        let holder = *self.by_object.get(&object)?.first()?;
        let held = self.by_thread[holder.0]
            .iter()
            .find(|h| h.object == object)?;
        Some((holder, held.taken))
    }

    /// Another thread that holds an object in a way that excludes this thread.
    pub(super) fn against(
        &self,
        object: ObjectIndex,
        thread: ThreadIndex,
        shared: bool,
        is_held: impl Fn(&Held) -> bool,
    ) -> Option<(ThreadIndex, UseIndex)> {
        let holders = self.by_object.get(&object)?;
        holders.iter().find_map(|holder| {
            let held = self.by_thread[holder.0]
                .iter()
                .find(|h| h.object == object)?;
            let against = *holder != thread && !(shared && held.shared) && is_held(held);
            against.then_some((*holder, held.taken))
        })
    }
}
