//! State that each client subscribes to besides stops: its trace, its log of threads, and holds.
//!
//! Each client has its own tracepoints, buffer and log
//! (docs/decisions/0003-one-controls-others-observe.md). Tracepoints of several clients at one
//! address share one trap in the program. Nothing here knows how the program is stopped or resumed.

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

/// The subscription of one client.
#[derive(Default)]
pub(crate) struct Subscription {
    pub(crate) trace: Experiment,
    /// Threads that were created or have ended. `None`: the client does not want to know.
    pub(crate) log: Option<ThreadLog>,
    /// The file that the process has executed since the last report.
    pub(crate) executed: Option<String>,
    /// Threads that are held for this client, since the last report.
    pub(crate) held: Vec<(Tid, u64, Instant)>,
    /// Times for which threads were stopped, since the last report.
    pub(crate) stalls: Stalls,
    /// The limit that the client has set for the cost of tracing.
    pub(crate) limit: Option<Limit>,
    /// Hold a thread for this observer before a signal ends the process.
    pub(crate) wants_fatal: bool,
    /// Threads that are held before such a signal, each with the signal, since the last report.
    pub(crate) fatal: Vec<(Tid, i32)>,
    /// The observer did not release the last held thread in time.
    pub(crate) late: bool,
}

/// The subscriptions of all clients of one process.
#[derive(Default)]
pub(crate) struct Subscriptions {
    clients: BTreeMap<Role, Subscription>,
    /// Threads that wait for observers.
    holds: BTreeMap<Tid, Hold>,
    /// Threads that execute single instructions after a hit, so that each is recorded.
    series: BTreeMap<Tid, Vec<(Role, StepSeries)>>,
    stall_clock: StallClock,
}

impl Subscriptions {
    /// The subscription of a client. Creates it if there is none.
    pub(crate) fn of(&mut self, role: Role) -> &mut Subscription {
        self.clients.entry(role).or_default()
    }

    /// The subscription of a client, if there is one.
    pub(crate) fn get(&self, role: Role) -> Option<&Subscription> {
        self.clients.get(&role)
    }

    /// Like [`get`](Self::get), but mutable.
    pub(crate) fn known(&mut self, role: Role) -> Option<&mut Subscription> {
        self.clients.get_mut(&role)
    }

    /// All subscriptions, each with its client.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = (Role, &mut Subscription)> {
        self.clients
            .iter_mut()
            .map(|(role, subscription)| (*role, subscription))
    }

    /// The traces of all clients.
    pub(crate) fn traces(&mut self) -> impl Iterator<Item = &mut Experiment> {
        self.clients
            .values_mut()
            .map(|subscription| &mut subscription.trace)
    }

    /// The thread logs of all clients that keep one.
    pub(crate) fn logs(&mut self) -> impl Iterator<Item = &mut ThreadLog> {
        self.clients
            .values_mut()
            .filter_map(|subscription| subscription.log.as_mut())
    }

    /// True if a client keeps a log of threads.
    pub(crate) fn has_log(&self, role: Role) -> bool {
        self.get(role).is_some_and(|client| client.log.is_some())
    }

    /// The strictest limit that a client has set.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.clients
            .values()
            .filter_map(|subscription| subscription.limit)
            .min()
    }

    /// True if any client keeps a log of threads.
    pub(crate) fn follow_threads(&self) -> bool {
        self.clients
            .values()
            .any(|subscription| subscription.log.is_some())
    }

    /// Addresses that need traps, and their breakpoint kinds.
    pub(crate) fn places(&self) -> BTreeMap<u64, usize> {
        self.wanted().collect()
    }

    /// The breakpoint kind of the trap at an address, if one is needed there.
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

    /// True if any client wants hits recorded without a stop (fast tracepoints).
    pub(crate) fn want_fast(&self) -> bool {
        let running = self
            .clients
            .values()
            .filter(|subscription| subscription.trace.running);
        let mut all = running.flat_map(|subscription| subscription.trace.tracepoints.values());
        all.any(|tracepoint| tracepoint.enabled && tracepoint.fast.is_some())
    }

    /// True if any client wants single steps recorded after a hit (`while-stepping`).
    pub(crate) fn want_steps(&self) -> bool {
        let running = self
            .clients
            .values()
            .filter(|subscription| subscription.trace.running);
        let mut all = running.flat_map(|subscription| subscription.trace.tracepoints.values());
        all.any(|tracepoint| tracepoint.enabled && tracepoint.steps > 0)
    }

    /// The joint plan of all tracepoints at this address, and the instructions that a fast
    /// tracepoint may move. `None` if only a trap will do.
    pub(crate) fn plan(&self, at: u64) -> Option<(Plan, Vec<u8>)> {
        let mut plan: Option<Plan> = None;
        let mut source: Option<Vec<u8>> = None;
        for subscription in self
            .clients
            .values()
            .filter(|subscription| subscription.trace.running)
        {
            let trace = &subscription.trace;
            let here = trace.tracepoints.values();
            for tracepoint in here.filter(|t| t.enabled && t.at == at) {
                let new = Plan::of(tracepoint, &trace.variables)?;
                plan = Some(match plan {
                    Some(plan) => plan.and(&new)?,
                    None => new,
                });
                source = source.or_else(|| tracepoint.fast.clone());
            }
        }
        Some((plan?, source?))
    }

    /// The instructions that a client has declared movable at an address.
    pub(crate) fn source(&self, at: u64) -> Option<&[u8]> {
        let all = self.clients.values();
        let mut here = all.flat_map(|subscription| subscription.trace.tracepoints.values());
        here.find_map(|tracepoint| tracepoint.fast.as_deref().filter(|_| tracepoint.at == at))
    }

    /// The size of the largest buffer, in bytes.
    pub(crate) fn buffer_size(&self) -> usize {
        let sizes = self
            .clients
            .values()
            .map(|subscription| subscription.trace.buffer.size());
        sizes.max().unwrap_or(0)
    }

    /// True if any client drains a running trace.
    pub(crate) fn are_drained(&self) -> bool {
        let mut all = self
            .clients
            .values()
            .map(|subscription| &subscription.trace);
        all.any(|trace| trace.running && trace.drained)
    }

    /// True if any client has a running trace.
    pub(crate) fn is_tracing(&self) -> bool {
        self.clients
            .values()
            .any(|subscription| subscription.trace.running)
    }

    /// True if any observer has a subscription.
    pub(crate) fn is_observed(&self) -> bool {
        self.clients.keys().any(|role| *role != Role::Control)
    }

    /// Handles an exec: the new program contains no traps yet. Returns the observers whose traces
    /// were running.
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

    /// Removes and returns the subscription of a client.
    pub(crate) fn remove(&mut self, role: Role) -> Option<Subscription> {
        self.clients.remove(&role)
    }
}
