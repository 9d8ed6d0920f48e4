//! How many threads wait for each object at a time.
//!
//! A wait whose end may be missing could be counted long after it was over, and others would seem
//! to queue up behind it. So where ends of calls are missing, the queues are empty.

use foldhash::HashMap;
use unspool_capture::GapKind;

use super::objects::{ObjectIndex, Objects};

/// A thread's place in the queue for an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Others waited already.
    pub(super) behind: bool,
    gaps: u64,
}

/// The queues for all objects.
#[derive(Debug, Default)]
pub(super) struct Queues {
    lengths: HashMap<ObjectIndex, usize>,
    /// Of how many probes that see ends of calls hits are missing at the moment.
    paused: usize,
    /// How often some began to be missing.
    gaps: u64,
}

impl Queues {
    /// Ends of some calls are missing, or no longer.
    pub(super) fn change(&mut self, gap: GapKind) {
        if gap == GapKind::Resumed {
            self.paused = self.paused.saturating_sub(1);
            return;
        }
        self.paused += usize::from(gap == GapKind::Paused);
        self.gaps += 1;
        self.lengths.clear();
    }

    /// A thread begins to wait; `None` if its end may not be seen.
    pub(super) fn join(&mut self, objects: &mut Objects, object: ObjectIndex) -> Option<Place> {
        if self.paused > 0 {
            return None;
        }
        let length = self.lengths.entry(object).or_default();
        let behind = *length > 0;
        *length += 1;
        let known = &mut objects.objects[object.0];
        known.longest_queue = known.longest_queue.max(*length);
        let gaps = self.gaps;
        Some(Place { behind, gaps })
    }

    /// It waits no longer.
    pub(super) fn leave(&mut self, object: ObjectIndex, place: Place) {
        if place.gaps == self.gaps
            && let Some(length) = self.lengths.get_mut(&object)
        {
            *length = length.saturating_sub(1);
        }
    }
}
