//! The longest hold of a lock during which other threads waited.

use super::objects::UseIndex;
use crate::model::calls::PathId;
use crate::model::thread::ThreadIndex;

/// A hold while others waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongHold {
    /// The thread that held it.
    pub thread: ThreadIndex,
    /// Where it was taken, if recorded; otherwise it had been taken before `from_ns`.
    pub taken: Option<UseIndex>,
    /// Where it was released, if only the release was recorded. If neither was, its thread's end
    /// released it.
    pub given_up: Option<PathId>,
    /// True if it is a read-write lock's last holder, and others may have held it meanwhile.
    pub may_be_shared: bool,
    /// Beginning of the hold, nanoseconds since the recording began.
    pub from_ns: u64,
    /// Length of the hold, nanoseconds.
    pub ns: u64,
    /// The part of that in which the recorder may have stopped a thread, nanoseconds.
    pub(crate) stood_ns: u64,
    /// The part of the rest in which the holder waited for a processor, nanoseconds.
    pub(crate) runnable_ns: u64,
    /// Number of events recorded of the holder during the hold.
    pub(super) events: u64,
    /// The first wait during the hold and its thread, if the hold's beginning was recorded.
    pub(crate) first: Option<(UseIndex, ThreadIndex)>,
    /// Threads that waited during the hold.
    pub waiting: Vec<ThreadIndex>,
    /// Total length of these waits over all threads.
    pub waited_ns: u64,
    /// Length, place and thread of the longest wait.
    pub longest_wait: Option<(u64, UseIndex, ThreadIndex)>,
}

impl LongHold {
    /// Its length without the recorder's stalls and the holder's waits for a processor.
    pub(crate) fn own_ns(&self) -> u64 {
        self.ns.saturating_sub(self.stood_ns + self.runnable_ns)
    }

    /// Adds a wait for the object that has ended.
    pub(super) fn add_wait(
        &mut self,
        used: UseIndex,
        thread: ThreadIndex,
        from_ns: u64,
        to_ns: u64,
    ) {
        if from_ns >= self.from_ns.saturating_add(self.ns) || to_ns <= self.from_ns {
            return;
        }
        if !self.waiting.contains(&thread) {
            self.waiting.push(thread);
        }
        let ns = to_ns.saturating_sub(from_ns);
        self.waited_ns = self.waited_ns.saturating_add(ns);
        if self.longest_wait.is_none_or(|(longest, ..)| longest < ns) {
            self.longest_wait = Some((ns, used, thread));
        }
    }
}
