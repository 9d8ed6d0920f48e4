//! Threads that wait for an observer, and how they go on when the wait is over.

use crate::subscription::hold::Hold;
use crate::subscription::role::Role;
use crate::subscription::stalls::Cause;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;

impl Tracee {
    /// An observer lets a thread go. Whether it was held for that observer.
    pub(crate) fn release(&mut self, tid: Tid, role: Role) -> bool {
        let (was, over) = self.subscriptions.release(tid, role);
        if let Some(hold) = over {
            self.let_go(tid, &hold);
        }
        was
    }

    /// An observer lets all threads go.
    pub(super) fn release_all(&mut self, role: Role) {
        for tid in self.subscriptions.held_tids() {
            self.release(tid, role);
        }
    }

    /// Lets threads go whose time is over.
    pub(super) fn release_overdue(&mut self) {
        while let Some((tid, hold)) = self.subscriptions.take_overdue() {
            self.let_go(tid, &hold);
        }
    }

    fn let_go(&mut self, tid: Tid, hold: &Hold) {
        let now = monotonic_ns();
        let held = u64::try_from(hold.since.elapsed().as_nanos()).unwrap_or(0);
        let subscriptions = &mut self.subscriptions;
        subscriptions.add_stall(now.saturating_sub(held), now, Cause::Late);
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return;
        };
        // What it is to report comes first.
        let free = self.process.run.may_start() && thread.pending.is_empty();
        let pc = thread.stopped().and_then(|stopped| stopped.pc().ok());
        match hold.at {
            // If it is halted, it traps there once more when it is resumed, and that is handled
            // then.
            Some(at) if free && pc == Some(at) => {
                if self.forget_hit(tid, at) {
                    self.pass(tid, at);
                } else {
                    self.continue_unreported(tid);
                }
            }
            _ => self.continue_unreported(tid),
        }
    }
}
