//! What each client wants to know beside stops: its trace, and the threads that come and go.
//!
//! Clients do not share these: the one that controls the program and those that observe it each have their own
//! tracepoints, buffer and log (docs/decisions/0003-one-controls-others-observe.md). In the program a place has one trap,
//! whoever wants it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::probe::trace::{Ended, Trace};
use crate::sys::Tid;

use super::log::Log;
use super::process::Process;

/// Whose it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Seat {
    /// The client that controls the program. There is one seat for all that do so, one after the other.
    Control,
    /// An observer, by its number.
    Observer(u32),
}

/// What one client wants to know.
#[derive(Default)]
pub(crate) struct Interest {
    pub(crate) trace: Trace,
    /// Threads that came and went, if that is wished for.
    pub(crate) log: Option<Log>,
    /// The file that the process executed since this was last told.
    pub(crate) executed: Option<String>,
    /// Threads that are held for this client, since this was last told.
    pub(crate) held: Vec<(Tid, u64, Instant)>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Interests(BTreeMap<Seat, Interest>);

impl Interests {
    /// One client's.
    pub(crate) fn of(&mut self, seat: Seat) -> &mut Interest {
        self.0.entry(seat).or_default()
    }

    /// One client's, if it ever had any.
    pub(crate) fn get(&self, seat: Seat) -> Option<&Interest> {
        self.0.get(&seat)
    }

    /// All, with whose they are.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = (Seat, &mut Interest)> {
        self.0.iter_mut().map(|(seat, interest)| (*seat, interest))
    }

    /// All traces.
    pub(super) fn traces(&mut self) -> impl Iterator<Item = &mut Trace> {
        self.0.values_mut().map(|interest| &mut interest.trace)
    }

    /// All logs that are kept.
    pub(super) fn logs(&mut self) -> impl Iterator<Item = &mut Log> {
        self.0
            .values_mut()
            .filter_map(|interest| interest.log.as_mut())
    }

    /// Whether anybody keeps a log.
    pub(super) fn follow_threads(&self) -> bool {
        self.0.values().any(|interest| interest.log.is_some())
    }

    /// Where traps are wanted, and their breakpoint kinds.
    pub(super) fn places(&self) -> BTreeMap<u64, usize> {
        let running = self.0.values().filter(|interest| interest.trace.running);
        running
            .flat_map(|interest| interest.trace.places())
            .collect()
    }

    /// Takes one client's out.
    pub(super) fn remove(&mut self, seat: Seat) -> Option<Interest> {
        self.0.remove(&seat)
    }
}

impl Process {
    /// Whether anybody's trace runs.
    pub(super) fn is_tracing(&self) -> bool {
        self.interests
            .0
            .values()
            .any(|interest| interest.trace.running)
    }

    /// A client's trace.
    pub(crate) fn trace(&mut self, seat: Seat) -> &mut Trace {
        &mut self.interests.of(seat).trace
    }

    /// Whether anybody observes it who has asked for something.
    pub(crate) fn is_observed(&self) -> bool {
        self.interests.0.keys().any(|seat| *seat != Seat::Control)
    }

    /// A client is gone, and with it all that it wanted to know.
    pub(crate) fn lose_interest(&mut self, seat: Seat) {
        if self.interests.get(seat).is_none() {
            return;
        }
        self.stop_trace(seat, Ended::Disconnected);
        self.interests.remove(seat);
        self.release_all(seat);
    }
}
