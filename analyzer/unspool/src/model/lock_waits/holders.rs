//! The threads that held a lock while others waited for it, by the wake-ups.

use std::collections::HashSet;

use super::{CallIndex, ThreadIndex};

/// A wait for a lock.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wait {
    pub(super) thread: ThreadIndex,
    pub(super) call: CallIndex,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// The thread that ended it.
    pub(super) waker: Option<ThreadIndex>,
    /// The recorder ended it, and not the program.
    pub(super) by_recorder: bool,
    /// The call's time limit ended it.
    pub(super) timed_out: bool,
    /// It had not ended when the recording, or the process, ended.
    pub(super) is_unended: bool,
    /// The thread waited for the same lock again soon after, before it was blocked elsewhere.
    pub(super) again: bool,
}

impl Wait {
    pub(super) fn ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Joins waits that a signal or the recorder has interrupted, and not a release.
pub(super) fn joined(waits: Vec<Wait>) -> Vec<Wait> {
    // A thread holds the lock at some time if it waits for it, or if one that it woke went on.
    let mut users: HashSet<ThreadIndex> = waits.iter().map(|wait| wait.thread).collect();
    let went_on = waits.iter().filter(|wait| !wait.again);
    users.extend(went_on.filter_map(|wait| wait.waker));
    let mut joined: Vec<Wait> = Vec::new();
    let mut is_open = false;
    for wait in waits {
        let waker = wait.waker.filter(|waker| users.contains(waker));
        let goes_on = wait.again && waker.is_none() && !wait.timed_out;
        match joined
            .last_mut()
            .filter(|before| is_open && before.thread == wait.thread)
        {
            // The thread would have gone on with the lock by now.
            Some(_) if wait.by_recorder && !wait.again && !wait.is_unended => {}
            Some(before) => {
                (before.to_ns, before.waker) = (wait.to_ns, waker);
                (before.by_recorder, before.is_unended) = (wait.by_recorder, wait.is_unended);
            }
            None => joined.push(Wait { waker, ..wait }),
        }
        is_open = goes_on;
    }
    // A wait that only the recorder ended goes on in the program.
    joined.retain(|wait| !wait.by_recorder || wait.is_unended);
    joined
}

/// A part of the waits for a lock.
#[derive(Debug, PartialEq)]
pub(super) struct Piece {
    /// The thread that ended it by releasing the lock.
    pub(super) holder: ThreadIndex,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Number of threads that waited.
    pub(super) waiters: u64,
}

/// The parts of the waits for a lock, from each release to the next. A thread that waits in a queue
/// waits for each holder before it, not only for the one that wakes it.
pub(super) fn pieces(waits: &[Wait]) -> Vec<Piece> {
    let releases = waits.iter();
    let mut releases: Vec<(u64, ThreadIndex)> = releases
        .filter_map(|wait| Some((wait.to_ns, wait.waker?)))
        .collect();
    releases.sort_unstable();
    let mut pieces = Vec::new();
    // By how much the number of threads that wait from the release before changes.
    let mut changes = vec![0i64; releases.len() + 1];
    for wait in waits {
        let first = releases.partition_point(|(ns, _)| *ns <= wait.from_ns);
        let end = releases.partition_point(|(ns, _)| *ns <= wait.to_ns);
        if first == end {
            continue;
        }
        let (to_ns, holder) = releases[first];
        pieces.push(Piece {
            holder,
            from_ns: wait.from_ns,
            to_ns,
            waiters: 1,
        });
        changes[first + 1] += 1;
        changes[end] -= 1;
    }
    let mut waiters = 0;
    for (pair, change) in releases.windows(2).zip(&changes[1..]) {
        waiters += change;
        let [(from_ns, _), (to_ns, holder)] = *pair else {
            continue;
        };
        if waiters > 0 && from_ns < to_ns {
            pieces.push(Piece {
                holder,
                from_ns,
                to_ns,
                waiters: waiters.unsigned_abs(),
            });
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_a_queue_is_for_each_holder() {
        let [a, b, c] = [1, 2, 3].map(ThreadIndex);
        let wait = |thread, from_ns, to_ns, waker| Wait {
            thread,
            call: CallIndex(0),
            from_ns,
            to_ns,
            waker,
            by_recorder: false,
            timed_out: false,
            is_unended: false,
            again: false,
        };
        // Thread a holds the lock until 50, then b until 60.
        let waits = [wait(b, 10, 50, Some(a)), wait(c, 20, 60, Some(b))];
        let parts = |waits: &[Wait]| -> Vec<_> {
            let pieces = pieces(waits).into_iter();
            pieces
                .map(|it| (it.holder, it.from_ns, it.to_ns, it.waiters))
                .collect()
        };
        let expected = [(a, 10, 50, 1), (a, 20, 50, 1), (b, 50, 60, 1)];
        assert_eq!(parts(&waits), expected);
        // Two threads wait from one release to the next.
        let waits = [
            wait(a, 10, 20, Some(c)),
            wait(b, 5, 40, Some(a)),
            wait(c, 15, 60, Some(b)),
        ];
        let expected = [
            (c, 10, 20, 1),
            (c, 5, 20, 1),
            (c, 15, 20, 1),
            (a, 20, 40, 2),
            (b, 40, 60, 1),
        ];
        assert_eq!(parts(&waits), expected);
        // A wait that a timer ends is for no known thread.
        assert_eq!(parts(&[wait(b, 10, 50, None)]), []);
        // A signal from c interrupts a wait.
        let interrupted = Wait {
            again: true,
            ..wait(b, 10, 30, Some(c))
        };
        let waits = vec![interrupted.clone(), wait(b, 31, 50, Some(a))];
        assert_eq!(
            joined(waits),
            [Wait {
                again: true,
                ..wait(b, 10, 50, Some(a))
            }]
        );
        // The recorder stops the thread for the signal, until the lock is free.
        let stop = Wait {
            by_recorder: true,
            ..wait(b, 31, 50, None)
        };
        let before = Wait {
            waker: None,
            ..interrupted.clone()
        };
        assert_eq!(joined(vec![interrupted.clone(), stop]), [before]);
        // A call with a time limit, and another one.
        let limited = Wait {
            timed_out: true,
            waker: None,
            ..interrupted.clone()
        };
        let both = vec![limited, wait(b, 31, 50, None)];
        assert_eq!(joined(both.clone()), both);
        // Thread c takes the lock, too, and another thread was faster than b.
        let waits = vec![
            interrupted,
            wait(b, 31, 50, Some(a)),
            wait(c, 60, 70, Some(a)),
        ];
        assert_eq!(joined(waits.clone()), waits);
    }
}
