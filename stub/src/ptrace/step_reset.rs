//! Clears the kernel's single-step state of threads in a program that has been halted for a while.
//!
//! If a thread's last resume was a kernel single-step, it would step once more if its tracer were
//! killed, and the report of that step would kill it. The kernel clears this state only when the
//! thread continues without a step. So the stub interrupts the thread and continues it: the thread
//! stops again before it returns to user mode. That costs as much as a step, and a client that
//! steps on immediately must not pay for it: software watchpoints take thousands of steps.

use std::time::{Duration, Instant};

use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::wait::Status;

use super::process::Process;
use super::thread::{At, Motion, State, Thread};

/// Time after which a silent client is assumed not to step on immediately.
const RESET_DELAY: Duration = Duration::from_millis(5);

impl Process {
    /// Schedules the reset when the client sees a stop.
    pub(crate) fn schedule_step_reset(&mut self) {
        let stepped = self.threads.values().any(Thread::keeps_step);
        self.step_reset_at = stepped.then(|| Instant::now() + RESET_DELAY);
    }

    /// Cancels the reset when the client resumes the program.
    pub(crate) fn cancel_step_reset(&mut self) {
        self.step_reset_at = None;
    }

    /// The time at which the reset is due.
    pub(crate) fn step_reset_due(&self) -> Option<Instant> {
        self.step_reset_at.filter(|_| self.end.is_none())
    }

    /// Clears the single-step state of stopped threads. Returns other reports that came meanwhile:
    /// the thread is being killed, or its process stopped.
    #[must_use]
    pub(crate) fn reset_steps(&mut self) -> Vec<(Tid, Status)> {
        let threads = self.threads.iter();
        let found = threads.filter_map(|(tid, thread)| thread.keeps_step().then_some(*tid));
        let mut others = Vec::new();
        for tid in found.collect::<Vec<Tid>>() {
            let Ok(info) = ptrace::signal_info(tid) else {
                continue;
            };
            // A thread at another signal must still take that signal. At other events the thread
            // would run on.
            let at = self.stopped(tid).map(|stopped| stopped.at());
            let stays = match at {
                Some(At::Signal) => info.signal() == libc::SIGTRAP && !self.is_sent_trap(tid),
                Some(At::Event) => info.code() == ptrace::INTERRUPTED,
                _ => false,
            };
            if !stays || ptrace::interrupt(tid).is_err() {
                continue;
            }
            let other = self.stop_again(tid, Some(&info));
            others.extend(other.map(|status| (tid, status)));
        }
        others
    }

    /// Lets a thread continue to a stop that has been requested, before it returns to user mode.
    /// There it shows the signal `shown`, for which the client may ask. Returns any other report.
    #[must_use]
    pub(super) fn stop_again(&mut self, tid: Tid, shown: Option<&SignalInfo>) -> Option<Status> {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.go(Motion::Continue, 0);
        }
        let status = self.report_of(tid)?;
        if status != Status::Held(libc::SIGTRAP) {
            return Some(status);
        }
        self.mark_stopped(tid, At::Event);
        if let Some(info) = shown {
            let _ = ptrace::set_signal_info(tid, info);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.step_reset = true;
        }
        None
    }
}

impl Thread {
    /// True if the thread is stopped and has the kernel's single-step state.
    fn keeps_step(&self) -> bool {
        self.kernel_steps && matches!(self.state, State::Stopped(_))
    }
}
