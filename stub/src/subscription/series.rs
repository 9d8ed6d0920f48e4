//! Threads that execute single instructions after a hit, so that each is recorded (gdb's
//! `while-stepping`).

use crate::sys::Tid;
use crate::tracepoint::experiment::{HitContext, StepSeries};

use super::Subscriptions;
use super::role::Role;

/// Maximum number of concurrent series of one thread. A tracepoint in a loop is hit again before
/// the series of its earlier hits are over.
const MAX_SERIES: usize = 1000;

impl Subscriptions {
    /// Begins the series of a thread that has hit tracepoints.
    pub(crate) fn begin_series(&mut self, tid: Tid, new: Vec<(Role, StepSeries)>) {
        if new.is_empty() {
            return;
        }
        let series = self.series.entry(tid).or_default();
        let room = MAX_SERIES.saturating_sub(series.len());
        series.extend(new.into_iter().take(room));
    }

    /// The address of the tracepoint whose hit began the first series of a thread.
    pub(crate) fn series_start(&self, tid: Tid) -> Option<u64> {
        let series = self.series.get(&tid)?;
        series.first().map(|(_, series)| series.at)
    }

    /// Records that a thread has executed an instruction and is now at `pc`.
    pub(crate) fn record_step(&mut self, tid: Tid, pc: u64, context: &mut dyn HitContext) {
        let Some(mut all) = self.series.remove(&tid) else {
            return;
        };
        all.retain_mut(|(role, series)| {
            let subscription = self.known(*role);
            subscription.is_some_and(|it| it.trace.step(series, pc, context))
        });
        if !all.is_empty() {
            self.series.insert(tid, all);
        }
    }

    /// Ends all series of a thread that has ended or is about to.
    pub(crate) fn end_series(&mut self, tid: Tid) {
        for (role, series) in self.series.remove(&tid).unwrap_or_default() {
            if let Some(subscription) = self.known(role) {
                subscription.trace.end_series(&series);
            }
        }
    }

    /// Drops series of traces that have ended. Returns the threads that had any series.
    pub(crate) fn drop_ended_series(&mut self) -> Vec<Tid> {
        let tids = self.series.keys().copied().collect();
        let clients = &self.clients;
        self.series.retain(|_, all| {
            all.retain(|(role, series)| {
                let subscription = clients.get(role);
                subscription.is_some_and(|it| it.trace.is_for(series))
            });
            !all.is_empty()
        });
        tids
    }
}
