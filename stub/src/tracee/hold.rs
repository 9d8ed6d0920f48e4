//! Resumes threads that have waited for an observer.

use crate::subscription::hold::Hold;
use crate::subscription::role::Role;
use crate::subscription::stalls::Cause;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;

impl Tracee {
    /// Ends an observer's hold on a thread. True if there was one.
    pub(crate) fn release(&mut self, tid: Tid, role: Role) -> bool {
        let (was, over) = self.subscriptions.release(tid, role);
        if let Some(hold) = over {
            self.let_go(tid, &hold);
        }
        was
    }

    /// Ends all holds of an observer.
    pub(super) fn release_all(&mut self, role: Role) {
        for tid in self.subscriptions.held_tids() {
            self.release(tid, role);
        }
    }

    /// Ends the holds whose time is over.
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
        // The thread's own reports come first.
        let free = self.process.run.may_start() && thread.pending.is_empty();
        let pc = thread.stopped().and_then(|stopped| stopped.pc().ok());
        match hold.at {
            // If the program is halted, the thread traps there again on resuming, and is handled
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
