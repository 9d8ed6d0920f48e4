//! Finds the thread that ended each wait, from the wakes at each futex word.
//!
//! A system call that returned 0 was woken by a call that began during the wait: the earliest one
//! that can still wake a thread. A wait that found the word changed was ended by the thread that
//! changed it. That thread is the last one to wake others there, or else the next one
//! (`stale_wake`).
//!
//! Where hits are missing this order proves nothing, so all wakes at the word must come from one
//! thread.

use std::collections::VecDeque;
use std::ops::Range;

use foldhash::HashMap;
use unspool_capture::GapKind;

use crate::model::ThreadIndex;
use crate::model::calls::PathId;

/// Maximum number of wakes kept per word.
const MAX_WAKES: usize = 64;

/// The thread that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ender {
    pub(super) thread: ThreadIndex,
    /// The call path; `None` if the thread's own end ended the wait.
    pub(super) path: Option<PathId>,
}

/// The answer to which thread ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    By(Ender),
    /// The thread that changed the word has not woken others yet.
    Later,
    Unknown,
}

/// How a wait in the kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Woken,
    /// The word changed before any thread woke the waiter.
    Changed,
    /// By a timeout, by a signal, or in an unknown way.
    Itself,
}

/// All words at which threads wait.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    words: HashMap<u64, Word>,
    /// Number of paused probes of futex calls.
    paused: usize,
    /// The latest time at which hits were missing.
    missing_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Word {
    waiting: usize,
    wakes: VecDeque<Wake>,
}

#[derive(Debug)]
struct Wake {
    by: Ender,
    ns: u64,
    left: u64,
}

impl Wakes {
    /// Forgets the words in memory that is unmapped.
    pub(super) fn unmap(&mut self, range: &Range<u64>) {
        self.words.retain(|word, _| !range.contains(word));
    }

    /// Notes that hits of some probe are missing, or no longer are.
    pub(super) fn change(&mut self, gap: GapKind, now: u64) {
        match gap {
            GapKind::Resumed => self.paused = self.paused.saturating_sub(1),
            GapKind::Paused => self.paused += 1,
            GapKind::Dropped | GapKind::Unspecified => {}
        }
        self.missing_ns = Some(now);
    }

    /// Notes that a thread is about to wait at a word.
    pub(super) fn wait(&mut self, word: u64) {
        self.words.entry(word).or_default().waiting += 1;
    }

    /// Notes that a call wakes up to `count` threads that wait at a word.
    pub(super) fn wake(&mut self, word: u64, by: Ender, ns: u64, count: u64) {
        let Some(known) = self.words.get_mut(&word) else {
            return;
        };
        if known.wakes.len() >= MAX_WAKES {
            known.wakes.pop_front();
        }
        let left = count;
        known.wakes.push_back(Wake { by, ns, left });
    }

    /// True if no hit is missing since a moment.
    pub(super) fn are_certain(&self, since_ns: u64) -> bool {
        self.paused == 0 && self.missing_ns.is_none_or(|missing| missing < since_ns)
    }

    /// A thread's wait is over: returns the thread that ended it, if known.
    pub(super) fn answer(&mut self, word: u64, since_ns: u64, how: Ended) -> Answer {
        let sound = self.missing_ns.is_none();
        let certain = self.are_certain(since_ns);
        let Some(known) = self.words.get_mut(&word) else {
            return Answer::Unknown;
        };
        let here = |wake: &&mut Wake| wake.ns >= since_ns;
        let by = match how {
            Ended::Itself => None,
            Ended::Woken => {
                let mut candidates = known.wakes.iter_mut().filter(here);
                let first = candidates.find(|wake| wake.left > 0);
                first.and_then(|first| {
                    first.left -= 1;
                    let mut others = candidates.filter(|wake| wake.left > 0);
                    let alone = sound || others.all(|wake| wake.by.thread == first.by.thread);
                    Some(first.by).filter(|_| alone)
                })
            }
            Ended::Changed => {
                let last = known.wakes.iter_mut().rfind(here);
                last.map(|wake| wake.by)
            }
        };
        known.waiting = known.waiting.saturating_sub(1);
        if known.waiting == 0 {
            self.words.remove(&word);
        }
        match by {
            Some(by) if certain => Answer::By(by),
            None if certain && how == Ended::Changed => Answer::Later,
            _ => Answer::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: u64 = 0xa000;

    fn by(thread: usize) -> Ender {
        Ender {
            thread: ThreadIndex(thread),
            path: Some(PathId(thread)),
        }
    }

    #[test]
    fn each_wake_ends_as_many_waits_as_it_says() {
        let mut wakes = Wakes::default();
        for _ in 0..3 {
            wakes.wait(WORD);
        }
        wakes.wake(WORD, by(1), 10, 1);
        wakes.wake(WORD, by(2), 20, 2);
        assert_eq!(wakes.answer(WORD, 5, Ended::Woken), Answer::By(by(1)));
        assert_eq!(wakes.answer(WORD, 15, Ended::Woken), Answer::By(by(2)));
        assert_eq!(wakes.answer(WORD, 5, Ended::Woken), Answer::By(by(2)));
        wakes.wait(WORD);
        assert_eq!(wakes.answer(WORD, 5, Ended::Woken), Answer::Unknown);
    }

    #[test]
    fn a_timeout_and_an_earlier_wake_end_no_wait() {
        let mut wakes = Wakes::default();
        wakes.wake(WORD, by(1), 10, 1);
        wakes.wait(WORD);
        assert_eq!(wakes.answer(WORD, 15, Ended::Woken), Answer::Unknown);
        wakes.wait(WORD);
        wakes.wait(WORD);
        wakes.wake(WORD, by(2), 30, 1);
        assert_eq!(
            wakes.answer(WORD, 20, Ended::Itself),
            Answer::Unknown,
            "a time limit"
        );
        assert_eq!(wakes.answer(WORD, 20, Ended::Woken), Answer::By(by(2)));
    }

    #[test]
    fn a_changed_word_was_changed_by_the_last_waker() {
        let mut wakes = Wakes::default();
        wakes.wait(WORD);
        wakes.wait(WORD);
        wakes.wake(WORD, by(1), 10, 1);
        wakes.wake(WORD, by(2), 20, 1);
        assert_eq!(wakes.answer(WORD, 5, Ended::Changed), Answer::By(by(2)));
        assert_eq!(wakes.answer(WORD, 25, Ended::Changed), Answer::Later);
    }

    /// If the beginning of a wait is missing, the earlier of two wakes may have ended it.
    #[test]
    fn the_order_of_wakes_proves_nothing_after_missing_hits() {
        let mut wakes = Wakes::default();
        wakes.change(GapKind::Paused, 5);
        wakes.wait(WORD);
        wakes.wake(WORD, by(1), 15, 1);
        assert_eq!(
            wakes.answer(WORD, 10, Ended::Woken),
            Answer::Unknown,
            "paused"
        );
        wakes.change(GapKind::Resumed, 20);
        wakes.wait(WORD);
        wakes.wake(WORD, by(1), 25, 1);
        assert_eq!(
            wakes.answer(WORD, 18, Ended::Woken),
            Answer::Unknown,
            "began in the gap"
        );
        wakes.wait(WORD);
        wakes.wake(WORD, by(1), 35, 1);
        wakes.wake(WORD, by(2), 36, 1);
        assert_eq!(wakes.answer(WORD, 30, Ended::Woken), Answer::Unknown);
        wakes.wait(WORD);
        wakes.wake(WORD, by(2), 45, 1);
        assert_eq!(wakes.answer(WORD, 40, Ended::Woken), Answer::By(by(2)));
    }
}
