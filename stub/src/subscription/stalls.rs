//! Measures the time for which threads were stopped by the stub and its clients.
//!
//! A stopped thread keeps its locks while others wait for them. Clients that record the program
//! must know about such delays, because the program did not cause them. Each stop of at least a
//! millisecond is reported with its cause: the stub waited for a processor, stopped all threads to
//! plant something or waited for a client to read, or all threads were halted until a client
//! resumed them. Shorter stops are counted and their times are added up.

use crate::sys::monotonic_ns;

use super::Subscriptions;

/// Maximum number of stalls that are kept apart until the client reads them.
const MAX_STALLS: usize = 1000;
/// Minimum duration of a stop that is reported on its own.
const LONG_STOP_NS: u64 = 1_000_000;

/// The cause of a stall.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The stub was slow, or waited for a client that did not read.
    Late,
    /// All threads were halted for a client.
    Halted,
}

/// An interval in which threads were stopped, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) cause: Cause,
}

/// Stalls that one client has not been sent yet.
#[derive(Default)]
pub(crate) struct Stalls {
    long: Vec<Stall>,
    /// Number of shorter stops, and their total time in nanoseconds.
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

    /// Removes and returns the intervals of all stalls with this cause.
    pub(crate) fn take(&mut self, cause: Cause) -> Vec<(u64, u64)> {
        let is_meant = |stall: &mut Stall| stall.cause == cause;
        let taken = self.long.extract_if(.., is_meant);
        taken.map(|stall| (stall.from, stall.to)).collect()
    }

    /// The number of short stops and their total time in nanoseconds, if they have changed since
    /// the last call.
    pub(crate) fn more_short(&mut self) -> Option<(u64, u64)> {
        let more = self.short != self.told_short;
        self.told_short = self.short;
        more.then_some(self.short)
    }
}

/// Measures when the threads of one process are stopped.
pub(super) struct StallClock {
    /// A thread was stopped since the event loop last slept.
    stopped: bool,
    /// The time at which all threads were halted for a client, by the monotonic clock.
    halted_since: Option<u64>,
    /// Stalls that happened before any client drained a trace.
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
    /// Records that a thread is stopped in this turn of the event loop.
    pub(crate) fn thread_stops(&mut self) {
        self.stall_clock.stopped = true;
    }

    /// Ends a turn of the event loop, which lasted from `from` to `to`. `halted` says that all
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

    /// Records that threads which were halted for a client are about to continue.
    pub(crate) fn halt_ends(&mut self, now: u64) {
        if let Some(since) = self.stall_clock.halted_since.take() {
            self.add_stall(since, now, Cause::Halted);
        }
    }

    /// Adds an interval in which threads may have been stopped.
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

    /// Passes the early stalls to a client that begins to drain its trace, whose preparations have
    /// caused them.
    pub(crate) fn hand_out_early_stalls(&mut self) {
        let early = std::mem::take(&mut self.stall_clock.early);
        for stalls in self.stalls() {
            early.iter().for_each(|stall| stalls.add(*stall));
        }
    }

    /// The stalls of all clients that drain a running trace.
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
    fn stalls_are_reported_once_and_by_cause() {
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
