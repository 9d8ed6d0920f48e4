//! Threads that execute instructions one by one after a hit of a tracepoint, for these to be noted (gdb's `while-stepping`).
//!
//! Nobody else is stopped for it, and nothing that can happen to the thread is different: it runs into traps, gets signals, may end. To
//! the client it continues. The instruction under the trap is the first; where it is executed in a slot, that is done by
//! a step. A system call is not stepped over but followed to its end, which may be far: a step that waits in the
//! kernel would kill the program if the stub were killed.

use crate::arch;
use crate::sys::Tid;
use crate::tracepoint::experiment::StepSeries;

use super::Tracee;
use super::budget::HitCost;
use super::tracepoints::set_of;
use crate::ptrace::thread::At;
use crate::subscription::role::Role;

/// A tracepoint in a loop is hit on the way from an earlier hit, and both are noted. No thread is on more ways at once.
const MOST: usize = 1000;

impl Tracee {
    /// A thread has hit tracepoints, and is to be followed from there.
    pub(super) fn begin_step_series(&mut self, tid: Tid, series: Vec<(Role, StepSeries)>) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            let room = MOST.saturating_sub(thread.series.len());
            thread.series.extend(series.into_iter().take(room));
        }
    }

    /// A thread has executed an instruction.
    pub(super) fn record_step(&mut self, tid: Tid) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|t| !t.series.is_empty()) else {
            return;
        };
        let from = thread.series_start();
        let mut series = std::mem::take(&mut thread.series);
        let Some((mut now, subscriptions)) = self.now(tid) else {
            return;
        };
        let Ok(pc) = now.stopped.pc() else {
            return;
        };
        series.retain_mut(|(role, one_series)| {
            let subscription = subscriptions.known(*role);
            subscription.is_some_and(|subscription| {
                subscription.trace.step(one_series, pc, set_of, &mut now)
            })
        });
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.series = series;
        }
        self.hit_cost = from.map(|at| HitCost {
            at,
            draining: 0,
            is_step: true,
        });
    }

    /// The same, if it is at the end of a system call, and has not been called away from it.
    pub(super) fn record_step_out_of_call(&mut self, tid: Tid) {
        let Some(thread) = self
            .threads
            .get_mut(&tid)
            .filter(|thread| thread.records_steps())
        else {
            return;
        };
        let stopped = thread.stopped().filter(|s| s.at() != At::InCall);
        let general = stopped.and_then(|stopped| stopped.general().ok());
        if general.is_some_and(|general| !arch::was_interrupted(general)) {
            self.record_step(tid);
        }
    }

    /// Whether a thread that is followed is about to enter the kernel, or is there.
    pub(super) fn steps_into_call(&mut self, tid: Tid) -> bool {
        let Some(thread) = self
            .threads
            .get_mut(&tid)
            .filter(|thread| thread.records_steps())
        else {
            return false;
        };
        let Some(stopped) = thread.stopped() else {
            return false;
        };
        if stopped.at() == At::InCall {
            return true;
        }
        let (Ok(pc), Ok(general)) = (stopped.pc(), stopped.general().map(<[u8]>::to_vec)) else {
            return false;
        };
        arch::goes_back(&general) || arch::is_system_call(&self.code(pc), &general)
    }

    /// A thread is about to end, or has.
    pub(super) fn end_step_series(&mut self, tid: Tid) {
        let thread = self.threads.get_mut(&tid);
        let series = thread.map(|thread| std::mem::take(&mut thread.series));
        for (role, one_series) in series.unwrap_or_default() {
            if let Some(subscription) = self.subscriptions.known(role) {
                subscription.trace.end_series(&one_series);
            }
        }
    }

    /// Nobody is followed any more for a trace that has ended. Everybody is stopped.
    pub(super) fn drop_step_series(&mut self) {
        for thread in self.threads.values_mut() {
            thread.series.retain(|(role, one_series)| {
                let subscription = self.subscriptions.get(*role);
                subscription.is_some_and(|subscription| subscription.trace.is_for(one_series))
            });
        }
    }
}
