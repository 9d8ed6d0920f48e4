//! A program that stands for a while, as it does when somebody looks at it: what the kernel keeps in its threads for us is taken out of them.
//!
//! Who has made a step by the kernel's means would make another if its tracer were killed, and be killed by the report of that: the
//! kernel forgets steps only when a thread goes on otherwise. So it does, as far as the kernel's door. That costs as much as a step, and
//! a client that steps on at once (software watchpoints are thousands of steps) shall not pay for it.

use std::time::{Duration, Instant};

use crate::sys::Tid;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::Tracee;
use crate::ptrace::thread::{At, Motion, State, Thread};

/// A client that has done nothing for so long is not about to step on.
const REST: Duration = Duration::from_millis(5);

impl Tracee {
    /// A stop is shown to the client.
    pub(super) fn schedule_step_reset(&mut self) {
        let stepped = self.threads.values().any(Thread::keeps_step);
        self.step_reset_at = stepped.then(|| Instant::now() + REST);
    }

    /// When steps are to be forgotten.
    pub(crate) fn step_reset_due(&self) -> Option<Instant> {
        self.step_reset_at.filter(|_| self.end.is_none())
    }

    pub(super) fn reset_steps_if_due(&mut self) {
        if self
            .step_reset_due()
            .is_some_and(|due| due <= Instant::now())
        {
            self.step_reset_at = None;
            self.reset_steps();
        }
    }

    /// Has the kernel forget the steps of threads that stand.
    pub(super) fn reset_steps(&mut self) {
        let threads = self.threads.iter();
        let found = threads.filter_map(|(tid, thread)| thread.keeps_step().then_some(*tid));
        for tid in found.collect::<Vec<Tid>>() {
            let Ok(info) = ptrace::signal_info(tid) else {
                continue;
            };
            // Of another signal the thread has yet to be told; at other events it would go on.
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
                Some(status) => {
                    // It is being killed, or its process stopped.
                    let halting = std::mem::replace(&mut self.halting, true);
                    self.handle(tid, status);
                    self.halting = halting;
                }
                None => {}
            }
        }
    }
}

impl Thread {
    /// Whether it stands, and the kernel has it step when it goes.
    fn keeps_step(&self) -> bool {
        self.kernel_steps && matches!(self.state, State::Stopped(_))
    }
}
