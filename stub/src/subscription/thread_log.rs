//! A log of created and ended threads, kept without extra stops.
//!
//! Clients of `QUnspoolThreads` read it. At each clone the kernel reports the new thread and its
//! creator. The new thread's thread pointer is known only when it stops for the first time, so the
//! log hands out entries only up to the first incomplete one.

use std::collections::VecDeque;
use std::time::Instant;

use crate::sys::Tid;

/// A change to a thread or process, and its time.
pub(crate) struct ThreadEvent {
    pub(crate) change: Change,
    pub(crate) at: Instant,
}

/// The kind of change.
pub(crate) enum Change {
    /// `creator` created `tid`. `pointer` is the new thread's thread pointer where the kernel shows
    /// it.
    Created {
        tid: Tid,
        creator: Tid,
        pointer: Option<u64>,
    },
    /// `tid` has ended with this exit code.
    Exited { tid: Tid, code: i32 },
    /// `tid` was killed by the signal that ended its process; by its process's exit if that is 0.
    Killed { tid: Tid, signal: i32 },
    /// `creator` started the process `pid`.
    Started { pid: Tid, creator: Tid },
    /// The process `pid`, whose start was reported earlier, executes this file.
    Executed { pid: Tid, file: Vec<u8> },
}

/// The entries that have not been handed out.
#[derive(Default)]
pub(crate) struct ThreadLog {
    entries: VecDeque<ThreadEvent>,
    /// Created threads that have not stopped yet.
    unborn: Vec<Tid>,
}

impl ThreadLog {
    pub(crate) fn created(&mut self, tid: Tid, creator: Tid) {
        self.unborn.push(tid);
        self.add(Change::Created {
            tid,
            creator,
            pointer: None,
        });
    }

    /// Completes the entry of a created thread, which has now stopped for the first time.
    pub(crate) fn born(&mut self, born: Tid, thread_pointer: Option<u64>) {
        self.unborn.retain(|tid| *tid != born);
        let entry = self.entries.iter_mut().rev();
        for entry in entry {
            if let Change::Created { tid, pointer, .. } = &mut entry.change
                && *tid == born
            {
                *pointer = thread_pointer;
                return;
            }
        }
    }

    pub(crate) fn exited(&mut self, tid: Tid, code: i32) {
        self.unborn.retain(|unborn| *unborn != tid);
        self.add(Change::Exited { tid, code });
    }

    pub(crate) fn killed(&mut self, tid: Tid, signal: i32) {
        self.unborn.retain(|unborn| *unborn != tid);
        self.add(Change::Killed { tid, signal });
    }

    pub(crate) fn started(&mut self, pid: Tid, creator: Tid) {
        self.add(Change::Started { pid, creator });
    }

    pub(crate) fn executed(&mut self, pid: Tid, file: Vec<u8>) {
        self.add(Change::Executed { pid, file });
    }

    /// Marks all entries as complete, because no created thread is left that could still stop.
    pub(crate) fn complete(&mut self) {
        self.unborn.clear();
    }

    /// Takes the complete entries, in the order in which they happened.
    pub(crate) fn take(&mut self) -> Vec<ThreadEvent> {
        self.entries.drain(..self.ready()).collect()
    }

    /// The time of the oldest entry that waits for a thread's first stop.
    pub(crate) fn held_up_since(&self) -> Option<Instant> {
        self.entries.get(self.ready()).map(|entry| entry.at)
    }

    /// Number of entries before the first incomplete one.
    fn ready(&self) -> usize {
        let unborn = |entry: &ThreadEvent| match entry.change {
            Change::Created { tid, .. } => self.unborn.contains(&tid),
            _ => false,
        };
        let first = self.entries.iter().position(unborn);
        first.unwrap_or(self.entries.len())
    }

    /// Puts back, at the front, entries that were taken too early.
    pub(crate) fn put_back(&mut self, entries: impl Iterator<Item = ThreadEvent>) {
        let later = std::mem::take(&mut self.entries);
        self.entries = entries.chain(later).collect();
    }

    /// Number of entries that have not been handed out.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The time of the oldest entry that has not been handed out.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.entries.front().map(|entry| entry.at)
    }

    fn add(&mut self, change: Change) {
        self.entries.push_back(ThreadEvent {
            change,
            at: Instant::now(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(log: &mut ThreadLog) -> Vec<i32> {
        let id = |entry: ThreadEvent| match entry.change {
            Change::Created { tid, .. } => tid.0,
            Change::Exited { tid, .. } | Change::Killed { tid, .. } => -tid.0,
            Change::Started { pid, .. } | Change::Executed { pid, .. } => pid.0,
        };
        log.take().into_iter().map(id).collect()
    }

    #[test]
    fn later_entries_wait_for_a_thread_that_has_yet_to_stop() {
        let mut log = ThreadLog::default();
        log.created(Tid(2), Tid(1));
        log.created(Tid(3), Tid(1));
        log.born(Tid(3), Some(7));
        assert!(ids(&mut log).is_empty());
        log.born(Tid(2), None);
        assert_eq!(ids(&mut log), [2, 3]);
        log.created(Tid(4), Tid(2));
        log.exited(Tid(3), 0);
        log.exited(Tid(4), 0);
        assert_eq!(ids(&mut log), [4, -3, -4]);
        log.created(Tid(5), Tid(1));
        log.complete();
        assert_eq!(ids(&mut log), [5]);
    }
}
