//! Who holds which locks.
//!
//! Apart from the replay of calls, which says when something is taken and given up, because both ways
//! to look at it, by thread and by object, must agree whatever is missing.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use super::gaps::{Gaps, Stamp};
use super::objects::{LongHold, ObjectIndex, Objects, UseIndex};
use crate::model::ThreadIndex;

/// Locks held at once of which the order is looked at; nobody holds more by design.
const DEEPEST: usize = 16;

/// A lock that a thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) object: ObjectIndex,
    /// Where it was taken.
    pub(super) taken: UseIndex,
    pub(super) since_ns: u64,
    /// Readers hold it together.
    pub(super) shared: bool,
    /// How often it was taken by its holder.
    pub(super) depth: u32,
    /// Where somebody waited for it meanwhile, and who.
    pub(super) waiter: Option<(UseIndex, ThreadIndex)>,
    /// How many events its holder had had until then.
    pub(super) events: u64,
    /// What was missing when it was taken.
    pub(super) stamp: Stamp,
}

/// All that is held at a moment.
#[derive(Debug)]
pub(super) struct Holds {
    /// Per thread, in the order it was taken.
    by_thread: Vec<Vec<Held>>,
    by_object: HashMap<ObjectIndex, Vec<ThreadIndex>>,
    /// Objects whose last holder was seen to give them up.
    free: HashSet<ObjectIndex>,
}

impl Holds {
    pub(super) fn new(threads: usize) -> Holds {
        Holds {
            by_thread: vec![Vec::new(); threads],
            by_object: HashMap::new(),
            free: HashSet::new(),
        }
    }

    /// What a thread holds.
    pub(super) fn of(&self, thread: ThreadIndex) -> &[Held] {
        self.by_thread.get(thread.0).map_or(&[], Vec::as_slice)
    }

    /// Who holds an object.
    pub(super) fn holders(&self, object: ObjectIndex) -> &[ThreadIndex] {
        self.by_object.get(&object).map_or(&[], Vec::as_slice)
    }

    /// An object was given up, and that was seen.
    pub(super) fn freed(&mut self, object: ObjectIndex) {
        self.free.insert(object);
    }

    /// Nobody holds it, as was seen.
    pub(super) fn is_free(&self, object: ObjectIndex) -> bool {
        self.free.contains(&object)
    }

    /// Whether it is held is not known from now on.
    pub(super) fn doubt(&mut self, object: ObjectIndex) {
        self.free.remove(&object);
    }

    /// A thread has got an object: who had it before has given it up, unseen.
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
        if all.len() == DEEPEST {
            // Too many to look at; the oldest is most likely one whose end was not seen.
            let oldest = all.remove(0);
            if let Some(holders) = self.by_object.get_mut(&oldest.object) {
                holders.retain(|holder| *holder != thread);
            }
            objects.objects[oldest.object.0].doubtful = true;
        }
        all.push(held);
    }

    /// Takes an object from a thread, if it has it, and counts how long it had it; but not if it may have had it twice, for
    /// a release and another acquisition may be missing.
    #[allow(clippy::too_many_arguments, reason = "the facts of one call")]
    pub(super) fn release(
        &mut self,
        objects: &mut Objects,
        thread: ThreadIndex,
        object: ObjectIndex,
        now: u64,
        events: u64,
        gaps: &Gaps,
        stood: &dyn Fn(u64) -> u64,
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
        let ns = now.saturating_sub(held.since_ns);
        let events = events.saturating_sub(held.events);
        objects.uses[held.taken.0].holds.add(ns);
        let owned = &mut objects.objects[object.0];
        owned.holds.add(ns);
        owned.hold_events += events;
        let stood_ns = match held.waiter {
            Some(_) => stood(held.since_ns),
            None => 0,
        };
        if let Some(first) = held.waiter {
            owned.held_long(LongHold {
                thread,
                taken: Some(held.taken),
                given_up: None,
                from_ns: held.since_ns,
                ns,
                stood_ns,
                events,
                first: Some(first),
                waiting: Vec::new(),
                waited_ns: 0,
                longest_wait: None,
            });
        }
        Some(held)
    }

    /// An object is no more.
    pub(super) fn forget(&mut self, object: ObjectIndex) {
        for holder in self.by_object.remove(&object).unwrap_or_default() {
            self.by_thread[holder.0].retain(|held| held.object != object);
        }
        self.free.remove(&object);
    }

    /// A thread has given up an object, unseen.
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

    /// Who has an object, and where it was taken.
    pub(super) fn holder(&self, object: ObjectIndex) -> Option<(ThreadIndex, UseIndex)> {
        let holder = *self.by_object.get(&object)?.first()?;
        let held = self.by_thread[holder.0]
            .iter()
            .find(|h| h.object == object)?;
        Some((holder, held.taken))
    }

    /// Another thread that has an object, in a way that keeps this one out.
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
