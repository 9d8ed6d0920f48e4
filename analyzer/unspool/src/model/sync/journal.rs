//! Lists every wait and every hold of a recording.
//!
//! Separate from the sums of [`Sync`](super::Sync), because a journal grows with the number of
//! events. The replay keeps one only for views that draw single waits.

use super::objects::UseIndex;
use crate::model::ThreadIndex;

/// A wait, from the call to its return. Times are nanoseconds since the recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSpan {
    /// The thread that waited.
    pub thread: ThreadIndex,
    /// The call it waited in.
    pub used: UseIndex,
    /// When the call began.
    pub from_ns: u64,
    /// When the call returned, or when the thread or the recording ended.
    pub to_ns: u64,
    /// The thread that held the object when the wait began, if that is known.
    pub holder: Option<ThreadIndex>,
    /// The thread that ended the wait, if that is known.
    pub waker: Option<ThreadIndex>,
}

/// A hold, from taking an object to giving it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSpan {
    /// The thread that held the object.
    pub thread: ThreadIndex,
    /// The call that took it.
    pub taken: UseIndex,
    /// When that call returned.
    pub from_ns: u64,
    /// When the call that released the lock began.
    pub to_ns: u64,
}

/// The waits and holds of all threads, in the order in which they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// The waits.
    pub waits: Vec<WaitSpan>,
    /// The holds whose end was recorded, if they are kept.
    pub holds: Vec<HoldSpan>,
    /// True to keep the holds. The critical path needs only the waits.
    pub(super) keeps_holds: bool,
}
