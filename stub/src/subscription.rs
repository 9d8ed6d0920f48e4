//! What each client has asked for beside stops: its trace, a log of threads, and holds.
//!
//! Each client has its own tracepoints, buffer and log
//! (docs/decisions/0003-one-controls-others-observe.md). In the program a place has one trap for
//! all of them. Nothing here knows how the program is stopped or resumed.

pub(crate) mod hold;
pub(crate) mod outbox;
pub(crate) mod role;
mod series;
pub(crate) mod stalls;
pub(crate) mod stop_policy;
pub(crate) mod thread_log;

use std::collections::BTreeMap;
use std::time::Instant;

use crate::sys::Tid;
use crate::tracepoint::budget::Limit;
use crate::tracepoint::experiment::{Ended, Experiment, StepSeries};
use crate::tracepoint::fast::planner::Plan;

use hold::Hold;
use role::Role;
use stalls::{StallClock, Stalls};
use thread_log::ThreadLog;

/// What one client wants to know.
#[derive(Default)]
pub(crate) struct Subscription {
    pub(crate) trace: Experiment,
    /// Threads that came and went, if that is wished for.
    pub(crate) log: Option<ThreadLog>,
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
    pub(crate) late: bool,
}

/// The subscriptions of all clients of one process.
#[derive(Default)]
pub(crate) struct Subscriptions {
    clients: BTreeMap<Role, Subscription>,
    /// Threads that wait for observers.
    holds: BTreeMap<Tid, Hold>,
    /// Threads that execute instructions one by one after a hit, to have them recorded.
    series: BTreeMap<Tid, Vec<(Role, StepSeries)>>,
    stall_clock: StallClock,
}

impl Subscriptions {
    /// One client's.
    pub(crate) fn of(&mut self, role: Role) -> &mut Subscription {
        self.clients.entry(role).or_default()
    }

    /// One client's, if it ever had any.
    pub(crate) fn get(&self, role: Role) -> Option<&Subscription> {
        self.clients.get(&role)
    }

    /// The same, to be changed.
    pub(crate) fn known(&mut self, role: Role) -> Option<&mut Subscription> {
        self.clients.get_mut(&role)
    }

    /// All, with whose they are.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = (Role, &mut Subscription)> {
        self.clients
            .iter_mut()
            .map(|(role, subscription)| (*role, subscription))
    }

    /// All traces.
    pub(crate) fn traces(&mut self) -> impl Iterator<Item = &mut Experiment> {
        self.clients
            .values_mut()
            .map(|subscription| &mut subscription.trace)
    }

    /// All logs that are kept.
    pub(crate) fn logs(&mut self) -> impl Iterator<Item = &mut ThreadLog> {
        self.clients
            .values_mut()
            .filter_map(|subscription| subscription.log.as_mut())
    }

    /// The strictest limit that a client has asked for.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.clients
            .values()
            .filter_map(|subscription| subscription.limit)
            .min()
    }

    /// Whether any client keeps a log of threads.
    pub(crate) fn follow_threads(&self) -> bool {
        self.clients
            .values()
            .any(|subscription| subscription.log.is_some())
    }

    /// Where traps are wanted, and their breakpoint kinds.
    pub(crate) fn places(&self) -> BTreeMap<u64, usize> {
        self.wanted().collect()
    }

    /// The breakpoint kind of the trap at a place, if one is wanted there.
    pub(crate) fn kind(&self, at: u64) -> Option<usize> {
        self.wanted()
            .find_map(|(place, kind)| (place == at).then_some(kind))
    }

    fn wanted(&self) -> impl Iterator<Item = (u64, usize)> {
        let running = self
            .clients
            .values()
            .filter(|subscription| subscription.trace.running);
        running.flat_map(|subscription| subscription.trace.places())
    }

    /// Whether any client wants hits noted without a stop.
    pub(crate) fn want_fast(&self) -> bool {
        let running = self
            .clients
            .values()
            .filter(|subscription| subscription.trace.running);
        let mut all = running.flat_map(|subscription| subscription.trace.tracepoints.values());
        all.any(|tracepoint| tracepoint.enabled && tracepoint.fast.is_some())
    }

    /// Whether threads are to be followed step by step after a hit.
    pub(crate) fn want_steps(&self) -> bool {
        let running = self
            .clients
            .values()
            .filter(|subscription| subscription.trace.running);
        let mut all = running.flat_map(|subscription| subscription.trace.tracepoints.values());
        all.any(|tracepoint| tracepoint.enabled && tracepoint.steps > 0)
    }

    /// What all need that have a tracepoint at this place, and the instructions that may be moved
    /// for it; `None`: it must have a trap.
    pub(crate) fn plan(
        &self,
        at: u64,
        set_of: &dyn Fn(usize) -> Option<usize>,
    ) -> Option<(Plan, Vec<u8>)> {
        let mut plan = Plan::default();
        let mut source: Option<Vec<u8>> = None;
        for subscription in self
            .clients
            .values()
            .filter(|subscription| subscription.trace.running)
        {
            let trace = &subscription.trace;
            let here = trace.tracepoints.values();
            for tracepoint in here.filter(|t| t.enabled && t.at == at) {
                plan = plan.and(&Plan::of(tracepoint, &trace.variables, set_of)?)?;
                source = source.or_else(|| tracepoint.fast.clone());
            }
        }
        Some((plan, source?))
    }

    /// The instructions that were at a place when it was said that they may be moved.
    pub(crate) fn source(&self, at: u64) -> Option<&[u8]> {
        let all = self.clients.values();
        let mut here = all.flat_map(|subscription| subscription.trace.tracepoints.values());
        here.find_map(|tracepoint| tracepoint.fast.as_deref().filter(|_| tracepoint.at == at))
    }

    /// The size of the largest buffer.
    pub(crate) fn buffer_size(&self) -> usize {
        let sizes = self
            .clients
            .values()
            .map(|subscription| subscription.trace.buffer.size());
        sizes.max().unwrap_or(0)
    }

    /// Whether any client drains a trace that runs.
    pub(crate) fn are_drained(&self) -> bool {
        let mut all = self
            .clients
            .values()
            .map(|subscription| &subscription.trace);
        all.any(|trace| trace.running && trace.drained)
    }

    /// Whether a trace of any client runs.
    pub(crate) fn is_tracing(&self) -> bool {
        self.clients
            .values()
            .any(|subscription| subscription.trace.running)
    }

    /// Whether an observer has asked for something.
    pub(crate) fn is_observed(&self) -> bool {
        self.clients.keys().any(|role| *role != Role::Control)
    }

    /// The process has executed a file, in which nothing is planted. The observers whose traces
    /// ran.
    pub(crate) fn execute_file(&mut self, path: &str) -> Vec<Role> {
        self.holds.clear();
        self.series.clear();
        let mut tracing = Vec::new();
        for (role, subscription) in &mut self.clients {
            if let Some(log) = &mut subscription.log {
                log.complete();
            }
            subscription.held.clear();
            if subscription.trace.running && *role != Role::Control {
                tracing.push(*role);
            }
            subscription.trace.stop(Ended::Gone);
            subscription.executed = Some(path.to_owned());
        }
        tracing
    }

    /// Takes one client's out.
    pub(crate) fn remove(&mut self, role: Role) -> Option<Subscription> {
        self.clients.remove(&role)
    }
}
