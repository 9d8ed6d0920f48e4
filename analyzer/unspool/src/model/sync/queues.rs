//! Counts the threads that wait for each object at the same time.
//!
//! A wait with a missing end would stay in the queue, and later waits would seem to queue up behind
//! it. So the queues are empty while ends of calls are missing.

use foldhash::HashMap;
use unspool_capture::GapKind;

use super::objects::ObjectIndex;

/// A thread's place in the queue for an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// True if other threads waited already.
    pub(super) behind: bool,
    /// Number of threads in the queue, with this one.
    pub(super) length: usize,
    gaps: u64,
}

/// The queues for all objects.
#[derive(Debug, Default)]
pub(super) struct Queues {
    lengths: HashMap<ObjectIndex, usize>,
    /// Number of paused probes that record ends of calls.
    paused: usize,
    /// Number of gaps so far.
    gaps: u64,
}

impl Queues {
    /// Notes that ends of some calls are missing, or no longer are.
    pub(super) fn change(&mut self, gap: GapKind) {
        if gap == GapKind::Resumed {
            self.paused = self.paused.saturating_sub(1);
            return;
        }
        self.paused += usize::from(gap == GapKind::Paused);
        self.gaps += 1;
        self.lengths.clear();
    }

    /// A thread begins to wait. Returns `None` if the end of the wait may not be recorded.
    pub(super) fn join(&mut self, object: ObjectIndex) -> Option<Place> {
        if self.paused > 0 {
            return None;
        }
        let length = self.lengths.entry(object).or_default();
        let behind = *length > 0;
        *length += 1;
        Some(Place {
            behind,
            length: *length,
            gaps: self.gaps,
        })
    }

    /// A thread that was in the queue before goes on waiting.
    pub(super) fn join_again(
        &mut self,
        object: ObjectIndex,
        before: Option<Place>,
    ) -> Option<Place> {
        let (before, now) = (before?, self.join(object)?);
        Some(Place {
            behind: before.behind,
            length: before.length.max(now.length),
            gaps: now.gaps,
        })
    }

    /// True if a thread waits for an object.
    pub(super) fn has_any(&self, object: ObjectIndex) -> bool {
        self.lengths.get(&object).is_some_and(|length| *length > 0)
    }

    /// Removes a thread from the queue.
    pub(super) fn leave(&mut self, object: ObjectIndex, place: Place) {
        if place.gaps == self.gaps
            && let Some(length) = self.lengths.get_mut(&object)
        {
            *length = length.saturating_sub(1);
        }
    }
}
