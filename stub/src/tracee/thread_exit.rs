//! Threads that end.
//!
//! The kernel reports the end of each, but of a process's first thread only when all others have ended, and the memory goes with
//! the last. So the first stops once more when it ends (`PTRACE_O_TRACEEXIT`), and when it has ended the others do. For others
//! that would be a stop which tells nothing, and whoever joins a thread waits for it.

use crate::sys::Tid;
use crate::sys::ptrace;

use super::Tracee;
use crate::ptrace::stop::Stop;
use crate::ptrace::thread::{At, Motion, State};
use crate::subscription::thread_log::Log;

impl Tracee {
    /// A thread that stands will stop once more when it ends, if we would not hear of it in time otherwise.
    pub(super) fn set_exit_stop(&mut self, tid: Tid) {
        let stops = tid == self.pid() || self.first_has_ended();
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if thread.stops_at_end == stops || thread.stopped().is_none() {
            return;
        }
        thread.stops_at_end = stops;
        // If it is dead, it will not stop any more, either.
        let _ = ptrace::set_options(tid, thread.options());
    }

    fn first_has_ended(&self) -> bool {
        let first = self.threads.get(&self.pid());
        first.is_none_or(|first| matches!(first.state, State::Exiting))
    }

    /// A thread has stopped for the last time.
    pub(super) fn thread_ends(&mut self, tid: Tid) {
        // Never held: an exec elsewhere may wait for this very thread to be gone.
        self.mark_stopped(tid, At::Event);
        self.budget.ending();
        let alone = self.ends_alone(tid);
        self.leave_collectors(tid, alone && tid != self.pid());
        self.end_step(tid);
        self.end_step_series(tid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.go(Motion::Continue, 0);
            thread.state = State::Exiting;
            thread.pending.clear();
        }
        if alone && tid == self.pid() {
            self.others_stop_at_end();
        }
        self.check_runners();
    }

    fn others_stop_at_end(&mut self) {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            match &self.threads[&tid].state {
                State::Stopped(_) => self.set_exit_stop(tid),
                State::Running(running) => running.interrupt(),
                State::Exiting => {}
            }
        }
    }

    /// A thread is no more.
    pub(super) fn thread_gone(&mut self, tid: Tid, end: Stop) {
        self.end_step(tid);
        self.end_step_series(tid);
        if tid != self.pid() {
            self.leave_collectors(tid, true);
        }
        self.threads.remove(&tid);
        self.holds.remove(&tid);
        if tid == self.pid() {
            self.subscriptions.logs().for_each(Log::complete);
            let planted = self.patches();
            self.leave_memory();
            self.threads.clear();
            self.end = Some(end);
            self.eventful = true;
            self.release_early(&planted);
            return;
        }
        match end {
            Stop::Killed(signal) => {
                let logs = self.subscriptions.logs();
                logs.for_each(|log| log.killed(tid, signal));
            }
            Stop::Exited(code) => {
                let logs = self.subscriptions.logs();
                logs.for_each(|log| log.exited(tid, code));
                if self.stop_policy.thread_events {
                    self.exits.push_back((tid, code));
                    self.eventful = true;
                }
            }
            _ => {}
        }
        self.check_runners();
    }

    /// StopNotifications when all threads that were to run have ended.
    fn check_runners(&mut self) {
        if self.going && self.nothing_runs() {
            self.eventful = true;
        }
    }
}
