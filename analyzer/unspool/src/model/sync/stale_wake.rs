//! Waits that end before the wake call that would have ended them.
//!
//! A thread that releases a lock changes the lock's word first and wakes waiters second. A waiter
//! that is interrupted in between sees the new value and returns at once. The next wake call at
//! that word is the one that would have woken it.

use std::ops::Range;

use foldhash::HashMap;

use super::objects::UseIndex;
use super::wakes::Ender;
use crate::model::ThreadIndex;

/// Limit of stale waits kept for one word.
const MAX_PER_WORD: usize = 64;

/// A wait whose waker is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnexplainedWait {
    pub(super) used: UseIndex,
    pub(super) identity: usize,
    pub(super) ns: u64,
}

/// A wait that returned because the word had changed.
#[derive(Debug)]
pub(super) struct StaleWait {
    pub(super) thread: ThreadIndex,
    /// The call that waited: the system call, or the one that it is part of.
    pub(super) number: u64,
    /// The finished wait; `None` while it goes on.
    pub(super) wait: Option<UnexplainedWait>,
}

/// All stale waits, by futex word.
#[derive(Debug, Default)]
pub(super) struct StaleWaits {
    words: HashMap<u64, Vec<StaleWait>>,
}

impl StaleWaits {
    /// Notes that a thread's wait found another value in the word, as part of the call `number`.
    pub(super) fn expect(&mut self, word: u64, thread: ThreadIndex, number: u64) {
        let known = self.words.entry(word).or_default();
        if known.len() < MAX_PER_WORD {
            known.push(StaleWait {
                thread,
                number,
                wait: None,
            });
        }
    }

    /// Notes that the call is over.
    pub(super) fn over(&mut self, word: u64, number: u64, wait: UnexplainedWait) {
        let known = self.words.get_mut(&word).into_iter().flatten();
        for late in known.filter(|late| late.number == number) {
            late.wait = Some(wait);
        }
    }

    /// A thread wakes others at the word: returns the stale waits that it would have ended.
    pub(super) fn wake(&mut self, word: u64, by: Ender) -> Vec<StaleWait> {
        let mut known = self.words.remove(&word).unwrap_or_default();
        // A thread had got the lock before it released it.
        known.retain(|late| late.thread != by.thread);
        known
    }

    /// A thread waits at the word, so the lock has been taken again. The next wake may belong to
    /// that later hold.
    pub(super) fn wait(&mut self, word: u64) {
        self.words.remove(&word);
    }

    /// Forgets the words in memory that is unmapped.
    pub(super) fn unmap(&mut self, range: &Range<u64>) {
        self.words.retain(|word, _| !range.contains(word));
    }

    /// Forgets all stale waits, because hits are missing.
    pub(super) fn forget(&mut self) {
        self.words.clear();
    }
}
