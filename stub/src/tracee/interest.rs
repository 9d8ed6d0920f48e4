//! What each client wants to know beside stops: its trace, and the threads that come and go.
//!
//! Clients do not share these: the one that controls the program and those that observe it each have their own
//! tracepoints, buffer and log (docs/decisions/0003-one-controls-others-observe.md). In the program a place has one trap,
//! whoever wants it.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::probe::budget::Limit;
use crate::probe::plan::Plan;
use crate::probe::trace::{Ended, Trace};
use crate::sys::Tid;

use super::log::Log;
use super::process::Process;
use super::stalls::Stalls;

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
    /// How long threads were stopped, since this was last told.
    pub(crate) stalls: Stalls,
    /// What its client has asked that tracing may cost.
    pub(crate) limit: Option<Limit>,
    /// Before a signal ends the process its thread waits for this observer.
    pub(crate) wants_fatal: bool,
    /// Threads that wait so, each with its signal, since this was last told.
    pub(crate) fatal: Vec<(Tid, i32)>,
    /// The last thread that was held for it was not let go in time.
    pub(super) late: bool,
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

    /// The same, to be changed.
    pub(super) fn known(&mut self, seat: Seat) -> Option<&mut Interest> {
        self.0.get_mut(&seat)
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

    /// The strictest limit that a client has asked for.
    pub(super) fn limit(&self) -> Option<Limit> {
        self.0.values().filter_map(|interest| interest.limit).min()
    }

    /// Whether anybody keeps a log.
    pub(super) fn follow_threads(&self) -> bool {
        self.0.values().any(|interest| interest.log.is_some())
    }

    /// Where traps are wanted, and their breakpoint kinds.
    pub(super) fn places(&self) -> BTreeMap<u64, usize> {
        self.wanted().collect()
    }

    /// The breakpoint kind of the trap at a place, if one is wanted there.
    pub(super) fn kind(&self, at: u64) -> Option<usize> {
        self.wanted()
            .find_map(|(place, kind)| (place == at).then_some(kind))
    }

    fn wanted(&self) -> impl Iterator<Item = (u64, usize)> {
        let running = self.0.values().filter(|interest| interest.trace.running);
        running.flat_map(|interest| interest.trace.places())
    }

    /// Whether anybody wants hits noted without a stop.
    pub(super) fn want_fast(&self) -> bool {
        let running = self.0.values().filter(|interest| interest.trace.running);
        let mut all = running.flat_map(|interest| interest.trace.tracepoints.values());
        all.any(|tracepoint| tracepoint.enabled && tracepoint.fast.is_some())
    }

    /// Whether threads are to be followed step by step after a hit.
    pub(super) fn want_steps(&self) -> bool {
        let running = self.0.values().filter(|interest| interest.trace.running);
        let mut all = running.flat_map(|interest| interest.trace.tracepoints.values());
        all.any(|tracepoint| tracepoint.enabled && tracepoint.steps > 0)
    }

    /// What all need that have a tracepoint at this place, and the instructions that may be moved for it; `None`: it must have a
    /// trap.
    pub(super) fn plan(
        &self,
        at: u64,
        set_of: &dyn Fn(usize) -> Option<usize>,
    ) -> Option<(Plan, Vec<u8>)> {
        let mut plan = Plan::default();
        let mut source: Option<Vec<u8>> = None;
        for interest in self.0.values().filter(|interest| interest.trace.running) {
            let trace = &interest.trace;
            let here = trace.tracepoints.values();
            for tracepoint in here.filter(|t| t.enabled && t.at == at) {
                plan = plan.and(&Plan::of(tracepoint, &trace.variables, set_of)?)?;
                source = source.or_else(|| tracepoint.fast.clone());
            }
        }
        Some((plan, source?))
    }

    /// The instructions that were at a place when it was said that they may be moved.
    pub(super) fn source(&self, at: u64) -> Option<&[u8]> {
        let all = self.0.values();
        let mut here = all.flat_map(|interest| interest.trace.tracepoints.values());
        here.find_map(|tracepoint| tracepoint.fast.as_deref().filter(|_| tracepoint.at == at))
    }

    /// The size of the largest buffer.
    pub(super) fn buffer_size(&self) -> usize {
        let sizes = self.0.values().map(|interest| interest.trace.buffer.size());
        sizes.max().unwrap_or(0)
    }

    /// Whether somebody drains a trace that runs.
    pub(super) fn are_drained(&self) -> bool {
        let mut all = self.0.values().map(|interest| &interest.trace);
        all.any(|trace| trace.running && trace.drained)
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
        self.agree_on_budget();
    }
}
