//! Threads that came and went, noted without stopping anything for it.
//!
//! What a client of `QUnspoolThreads` is told. The kernel says at each clone who made whom; a new
//! thread's thread pointer is known a moment later, when it stops for the first time, so entries
//! are handed out up to the first that is not complete.

use std::collections::VecDeque;
use std::time::Instant;

use crate::sys::Tid;

/// Something that happened to a thread, and when.
pub(crate) struct ThreadEvent {
    pub(crate) change: Change,
    pub(crate) at: Instant,
}

/// What happened.
pub(crate) enum Change {
    /// `creator` made `tid`, whose thread pointer is `pointer` where the kernel shows it.
    Created {
        tid: Tid,
        creator: Tid,
        pointer: Option<u64>,
    },
    /// `tid` has ended with this exit code.
    Exited { tid: Tid, code: i32 },
    /// `tid` was killed by the signal that ended its process.
    Killed { tid: Tid, signal: i32 },
    /// `creator` started the process `pid`.
    Started { pid: Tid, creator: Tid },
    /// The process `pid`, which was started before, executes this file.
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

    /// A created thread has stopped for the first time.
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

    /// No thread is left that could still be born.
    pub(crate) fn complete(&mut self) {
        self.unborn.clear();
    }

    /// What can be told now, in the order in which it happened.
    pub(crate) fn take(&mut self) -> Vec<ThreadEvent> {
        self.entries.drain(..self.ready()).collect()
    }

    /// Since when something waits for a thread's first stop.
    pub(crate) fn held_up_since(&self) -> Option<Instant> {
        self.entries.get(self.ready()).map(|entry| entry.at)
    }

    /// How many entries can be told now.
    fn ready(&self) -> usize {
        let unborn = |entry: &ThreadEvent| match entry.change {
            Change::Created { tid, .. } => self.unborn.contains(&tid),
            _ => false,
        };
        let first = self.entries.iter().position(unborn);
        first.unwrap_or(self.entries.len())
    }

    /// Takes back what was handed out too early.
    pub(crate) fn put_back(&mut self, entries: impl Iterator<Item = ThreadEvent>) {
        let later = std::mem::take(&mut self.entries);
        self.entries = entries.chain(later).collect();
    }

    /// How many entries have not been handed out.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// When the first entry happened that has not been handed out.
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
    fn nothing_overtakes_a_thread_that_has_yet_to_stop() {
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
