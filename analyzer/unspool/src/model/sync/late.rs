//! Waits that were over before the call was seen that ended them.
//!
//! Whoever gives something up changes its word first and then wakes those that wait for that, if there are any. A thread whose wait
//! was interrupted in between finds another value in the word and returns at once: the call that would have woken it is the next one there.

use foldhash::HashMap;

use super::objects::UseIndex;
use super::wakes::Ender;
use crate::model::ThreadIndex;

/// Waits at one word that are remembered.
const MOST: usize = 64;

/// A wait that nobody is known to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unblamed {
    pub(super) used: UseIndex,
    pub(super) identity: usize,
    pub(super) ns: u64,
}

/// One that found another value.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) thread: ThreadIndex,
    /// The call that waited: the system call, or the one that it is part of.
    pub(super) number: u64,
    /// What it was; `None` while it goes on.
    pub(super) wait: Option<Unblamed>,
}

/// All of them, by their words.
#[derive(Debug, Default)]
pub(super) struct Latecomers {
    words: HashMap<u64, Vec<Late>>,
}

impl Latecomers {
    /// A thread has found another value in a word, which it waited for as part of that call.
    pub(super) fn expect(&mut self, word: u64, thread: ThreadIndex, number: u64) {
        let known = self.words.entry(word).or_default();
        if known.len() < MOST {
            known.push(Late {
                thread,
                number,
                wait: None,
            });
        }
    }

    /// The call is over.
    pub(super) fn over(&mut self, word: u64, number: u64, wait: Unblamed) {
        let known = self.words.get_mut(&word).into_iter().flatten();
        for late in known.filter(|late| late.number == number) {
            late.wait = Some(wait);
        }
    }

    /// Somebody wakes others at the word: those that it would have woken.
    pub(super) fn wake(&mut self, word: u64, by: Ender) -> Vec<Late> {
        let mut known = self.words.remove(&word).unwrap_or_default();
        // What a thread gives up itself it had got before.
        known.retain(|late| late.thread != by.thread);
        known
    }

    /// Somebody waits there: it has been taken again, and who wakes others next may have given that up.
    pub(super) fn wait(&mut self, word: u64) {
        self.words.remove(&word);
    }

    /// Hits are missing.
    pub(super) fn forget(&mut self) {
        self.words.clear();
    }
}
