//! Has the kernel forget that threads made steps, in a program that has been halted for a while.
//!
//! A thread that has made a step by the kernel's means would make another one if its tracer were
//! killed, and the report of that would kill it. The kernel forgets steps only when a thread goes
//! on otherwise. So the thread goes on, as far as the kernel's door. That costs as much as a step,
//! and a client that steps on at once must not pay for it: software watchpoints are thousands of
//! steps.

use std::time::{Duration, Instant};

use crate::sys::Tid;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::process::Process;
use super::thread::{At, Motion, State, Thread};

/// A client that has done nothing for this long is not about to step on.
const RESET_DELAY: Duration = Duration::from_millis(5);

impl Process {
    /// A stop is shown to the client: steps are forgotten after a delay.
    pub(crate) fn schedule_step_reset(&mut self) {
        let stepped = self.threads.values().any(Thread::keeps_step);
        self.step_reset_at = stepped.then(|| Instant::now() + RESET_DELAY);
    }

    /// The client goes on: steps are kept.
    pub(crate) fn cancel_step_reset(&mut self) {
        self.step_reset_at = None;
    }

    /// When steps are to be forgotten.
    pub(crate) fn step_reset_due(&self) -> Option<Instant> {
        self.step_reset_at.filter(|_| self.end.is_none())
    }

    /// Has the kernel forget the steps of threads that are stopped. Other reports that came
    /// meanwhile are for the caller: the thread is being killed, or its process stopped.
    #[must_use]
    pub(crate) fn reset_steps(&mut self) -> Vec<(Tid, Status)> {
        let threads = self.threads.iter();
        let found = threads.filter_map(|(tid, thread)| thread.keeps_step().then_some(*tid));
        let mut others = Vec::new();
        for tid in found.collect::<Vec<Tid>>() {
            let Ok(info) = ptrace::signal_info(tid) else {
                continue;
            };
            // A thread at another signal must still take it; at other events it would go on.
            let at = self.stopped(tid).map(|stopped| stopped.at());
            let stays = match at {
                Some(At::Signal) => info.signal() == libc::SIGTRAP && !self.is_sent_trap(tid),
                Some(At::Event) => info.code() == ptrace::INTERRUPTED,
                _ => false,
            };
            if !stays || ptrace::interrupt(tid).is_err() {
                continue;
            }
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.go(Motion::Continue, 0);
            }
            match self.report_of(tid) {
                Some(Status::Held(libc::SIGTRAP)) => {
                    self.mark_stopped(tid, At::Event);
                    // What the client is shown of the stop.
                    let _ = ptrace::set_signal_info(tid, &info);
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        thread.step_reset = true;
                    }
                }
                Some(status) => others.push((tid, status)),
                None => {}
            }
        }
        others
    }
}

impl Thread {
    /// Whether it is stopped, and the kernel has it step when it goes.
    fn keeps_step(&self) -> bool {
        self.kernel_steps && matches!(self.state, State::Stopped(_))
    }
}
