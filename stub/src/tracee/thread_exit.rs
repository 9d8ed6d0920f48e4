//! Handles the ends of threads: removes what was planted for them, and notifies clients.

use crate::ptrace::stop::Stop;
use crate::subscription::thread_log::ThreadLog;
use crate::sys::Tid;

use super::Tracee;

impl Tracee {
    /// Handles the last stop of a thread.
    pub(super) fn thread_ends(&mut self, tid: Tid) {
        let first = tid == self.process.pid();
        self.tracepoints.budget.ending();
        let alone = self.process.ends_alone(tid);
        self.leave_collectors(tid, alone && !first);
        self.end_step(tid);
        self.end_series(tid);
        self.process.let_end(tid);
        if alone && first {
            self.process.set_exit_stops();
        }
        self.check_runners();
    }

    /// Handles the end of a thread.
    pub(super) fn thread_gone(&mut self, tid: Tid, end: Stop) {
        let first = tid == self.process.pid();
        self.end_step(tid);
        self.subscriptions.end_series(tid);
        if !first {
            self.leave_collectors(tid, true);
        }
        let thread = self.process.threads.remove(&tid);
        let killed_by_exit = thread.is_some_and(|thread| thread.killed_by_exit);
        self.subscriptions.forget_thread(tid);
        if first {
            self.subscriptions.logs().for_each(ThreadLog::complete);
            let planted = self.patches();
            self.leave_memory();
            self.process.threads.clear();
            self.process.end = Some(end);
            self.process.run.set_event();
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
                logs.for_each(|log| match killed_by_exit {
                    true => log.killed(tid, 0),
                    false => log.exited(tid, code),
                });
                if self.stop_policy.thread_events {
                    self.process.thread_exits.push_back((tid, code));
                    self.process.run.set_event();
                }
            }
            _ => {}
        }
        self.check_runners();
    }

    /// Queues a stop if all threads that were to run have ended.
    fn check_runners(&mut self) {
        if self.process.is_going() && self.nothing_runs() {
            self.process.run.set_event();
        }
    }
}
