//! Records the instructions that a thread executes after it has hit a tracepoint (gdb's
//! `while-stepping`).
//!
//! Other threads keep running. The thread itself behaves as always: it hits traps, gets signals and
//! may end. For the client it continues. The instruction under the trap is the first one; if it is
//! displaced, a step executes it. A system call is not stepped over but followed to its end, which
//! may be far away: a step that waits in the kernel would kill the program if the stub were killed.

use crate::arch;
use crate::ptrace::thread::At;
use crate::subscription::role::Role;
use crate::sys::Tid;
use crate::tracepoint::budget::HitCost;
use crate::tracepoint::experiment::StepSeries;

use super::Tracee;

impl Tracee {
    /// Starts recording the instructions of a thread that has hit tracepoints.
    pub(super) fn begin_series(&mut self, tid: Tid, series: Vec<(Role, StepSeries)>) {
        self.subscriptions.begin_series(tid, series);
        self.update_series_start(tid);
    }

    /// Records an instruction that a thread has executed.
    pub(super) fn record_step(&mut self, tid: Tid) {
        let Some(at) = self.subscriptions.series_start(tid) else {
            return;
        };
        let Some((mut hit, subscriptions)) = self.live_hit(tid) else {
            return self.end_series(tid);
        };
        let Ok(pc) = hit.stopped.pc() else {
            return self.end_series(tid);
        };
        subscriptions.record_step(tid, pc, &mut hit);
        self.update_series_start(tid);
        self.tracepoints.hit_cost = Some(HitCost {
            at,
            draining: 0,
            is_step: true,
        });
    }

    /// Records the exit from a system call, which is a step unless a signal has interrupted the
    /// call.
    pub(super) fn record_step_out_of_call(&mut self, tid: Tid) {
        let thread = self.process.threads.get_mut(&tid);
        let Some(thread) = thread.filter(|thread| thread.records_steps()) else {
            return;
        };
        let stopped = thread.stopped().filter(|s| s.at() != At::InCall);
        let general = stopped.and_then(|stopped| stopped.general().ok());
        if general.is_some_and(|general| !arch::was_interrupted(general)) {
            self.record_step(tid);
        }
    }

    /// True if a thread whose steps are recorded is about to enter the kernel, or is inside it.
    pub(super) fn steps_into_call(&mut self, tid: Tid) -> bool {
        let thread = self.process.threads.get_mut(&tid);
        let Some(thread) = thread.filter(|thread| thread.records_steps()) else {
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

    /// Ends the recording of a thread that is about to end.
    pub(super) fn end_series(&mut self, tid: Tid) {
        self.subscriptions.end_series(tid);
        self.update_series_start(tid);
    }

    /// Ends the recording for traces that have ended. Every thread must be stopped.
    pub(super) fn drop_ended_series(&mut self) {
        for tid in self.subscriptions.drop_ended_series() {
            self.update_series_start(tid);
        }
    }

    fn update_series_start(&mut self, tid: Tid) {
        if let Some(thread) = self.process.threads.get_mut(&tid) {
            thread.records_steps_from = self.subscriptions.series_start(tid);
        }
    }
}
