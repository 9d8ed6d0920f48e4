//! Measures the time that threads were stopped for the stub and its clients.
//!
//! A thread that is stopped holds its locks, and others wait for them: that is not the program's
//! doing, and clients that record it need to know. Stops of a millisecond or more are told one by
//! one: this process had to wait for a processor, halted all threads to plant something, or waited
//! for a client; or all threads were halted until a client resumed them. Shorter stops are counted
//! and summed up.

use crate::sys::monotonic_ns;

use super::Subscriptions;

/// Stalls that are kept apart for a client that does not hear them.
const MAX_STALLS: usize = 1000;
/// Stops of at least this length are told one by one.
const LONG_STOP_NS: u64 = 1_000_000;

/// What clients are told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The stub was late, or waited for a client that does not read.
    Late,
    /// All threads were halted for a client.
    Halted,
}

/// A moment in which threads were stopped, by the monotonic clock in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) cause: Cause,
}

/// What one client is still to be told.
#[derive(Default)]
pub(crate) struct Stalls {
    long: Vec<Stall>,
    /// How many stops were shorter, and how long they took together.
    short: (u64, u64),
    told_short: (u64, u64),
}

impl Stalls {
    fn add(&mut self, stall: Stall) {
        let is_full = self.long.len() >= MAX_STALLS;
        match self.long.last_mut() {
            Some(last) if is_full => last.to = stall.to,
            _ => self.long.push(stall),
        }
    }

    /// Takes out those with this cause.
    pub(crate) fn take(&mut self, cause: Cause) -> Vec<(u64, u64)> {
        let is_meant = |stall: &mut Stall| stall.cause == cause;
        let taken = self.long.extract_if(.., is_meant);
        taken.map(|stall| (stall.from, stall.to)).collect()
    }

    /// How many short stops there were and how long they took, if there are more than when this was
    /// asked last.
    pub(crate) fn more_short(&mut self) -> Option<(u64, u64)> {
        let more = self.short != self.told_short;
        self.told_short = self.short;
        more.then_some(self.short)
    }
}

/// When threads of one process were stopped.
pub(super) struct StallClock {
    /// A thread has been stopped since the event loop last slept.
    stopped: bool,
    /// When all threads were halted for a client, by the monotonic clock.
    halted_since: Option<u64>,
    /// Stalls that happened before a client drained a trace.
    early: Vec<Stall>,
}

impl Default for StallClock {
    /// A process begins halted.
    fn default() -> StallClock {
        StallClock {
            stopped: false,
            halted_since: Some(monotonic_ns()),
            early: Vec::new(),
        }
    }
}

impl Subscriptions {
    /// A thread is stopped, in this turn of the event loop.
    pub(crate) fn thread_stops(&mut self) {
        self.stall_clock.stopped = true;
    }

    /// A turn of the event loop ends that lasted from one moment to the other; `halted`: all
    /// threads are halted for a client.
    pub(crate) fn turn_ends(&mut self, (from, to): (u64, u64), halted: bool) {
        if std::mem::take(&mut self.stall_clock.stopped) {
            match to.saturating_sub(from) {
                short if short < LONG_STOP_NS => self.add_short(short),
                _ => self.add_stall(from, to, Cause::Late),
            }
        }
        if halted {
            self.stall_clock.halted_since.get_or_insert(from);
        }
    }

    /// Stopped threads waited from one moment to the other, for a client that had to read first.
    pub(crate) fn were_held_up(&mut self, from: u64, to: u64) {
        if self.stall_clock.stopped {
            self.add_stall(from, to, Cause::Late);
        }
    }

    /// Threads that were halted for a client are about to go on.
    pub(crate) fn halt_ends(&mut self, now: u64) {
        if let Some(since) = self.stall_clock.halted_since.take() {
            self.add_stall(since, now, Cause::Halted);
        }
    }

    /// A thread may have been stopped from one moment to the other.
    pub(crate) fn add_stall(&mut self, from: u64, to: u64, cause: Cause) {
        let stall = Stall { from, to, cause };
        let mut any = false;
        for stalls in self.stalls() {
            stalls.add(stall);
            any = true;
        }
        let early = &mut self.stall_clock.early;
        if !any && early.len() < MAX_STALLS {
            early.push(stall);
        }
    }

    /// A client that drains its trace begins: it gets the stalls that its preparation has caused.
    pub(crate) fn hand_out_early_stalls(&mut self) {
        let early = std::mem::take(&mut self.stall_clock.early);
        for stalls in self.stalls() {
            early.iter().for_each(|stall| stalls.add(*stall));
        }
    }

    /// The stalls of clients that drain a trace that runs.
    fn stalls(&mut self) -> impl Iterator<Item = &mut Stalls> {
        let drained = self.clients.values_mut();
        let drained = drained.filter(|it| it.trace.running && it.trace.drained);
        drained.map(|subscription| &mut subscription.stalls)
    }

    fn add_short(&mut self, ns: u64) {
        for stalls in self.stalls() {
            stalls.short.0 += 1;
            stalls.short.1 += ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_told_once_and_by_cause() {
        let mut stalls = Stalls::default();
        let stall = |from, cause| Stall {
            from,
            to: from + 1,
            cause,
        };
        stalls.add(stall(1, Cause::Late));
        stalls.add(stall(5, Cause::Halted));
        stalls.add(stall(9, Cause::Late));
        assert_eq!(stalls.take(Cause::Halted), [(5, 6)]);
        assert_eq!(stalls.take(Cause::Late), [(1, 2), (9, 10)]);
        assert!(stalls.take(Cause::Late).is_empty());
        assert_eq!(stalls.more_short(), None);
        stalls.short = (2, 700);
        assert_eq!(stalls.more_short(), Some((2, 700)));
        assert_eq!(stalls.more_short(), None);
        // Once the list is full, the last stall grows.
        (0..MAX_STALLS + 5).for_each(|at| stalls.add(stall(10 * at as u64, Cause::Late)));
        let told = stalls.take(Cause::Late);
        let last = 10 * (MAX_STALLS as u64 + 4) + 1;
        assert_eq!(
            (told.len(), told.last().map(|l| l.1)),
            (MAX_STALLS, Some(last))
        );
    }
}
