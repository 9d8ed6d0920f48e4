//! Lets clients read the threads before a signal ends the process.
//!
//! The default action of most signals ends the process. The kernel lists the signals that the
//! process handles or ignores (`SigCgt` and `SigIgn` in proc(5)). The client in control gets a
//! stop, even if it wants the signal passed. For an observer the thread waits, as at a tracepoint
//! (`hold`).

use crate::sys::{Tid, status_field};

use super::Tracee;
use crate::subscription::role::Role;

impl Tracee {
    /// True if the client in control wants a stop before this signal ends the process.
    pub(super) fn is_fatal_for_control(&self, signal: i32) -> bool {
        self.stop_policy.fatal && self.is_fatal(signal)
    }

    /// Holds a thread for the observers that want a stop before this signal ends the process. False
    /// if there are none.
    pub(super) fn hold_if_fatal(&mut self, tid: Tid, signal: i32) -> bool {
        let observers = self.subscriptions.each();
        let asked =
            observers.filter_map(|(role, subscription)| subscription.wants_fatal.then_some(role));
        let asked: Vec<Role> = asked.collect();
        if asked.is_empty() || !self.is_fatal(signal) {
            return false;
        }
        for role in asked {
            self.subscriptions.hold_unreported(tid, role, None);
            self.subscriptions.of(role).fatal.push((tid, signal));
        }
        true
    }

    /// True if this signal ends the process when it is delivered.
    fn is_fatal(&self, signal: i32) -> bool {
        if !ends_by_default(signal) {
            return false;
        }
        let status = String::from_utf8(self.process.read_proc("status")).unwrap_or_default();
        let is_in = |set: &str| {
            let mask: Option<String> = status_field(&status, set);
            let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
            // An unreadable mask must not make a signal look fatal.
            mask.is_none_or(|mask| mask >> (signal - 1) & 1 != 0)
        };
        !is_in("SigCgt") && !is_in("SigIgn")
    }
}

/// True if the default action of a signal is to end the process (signal(7)).
fn ends_by_default(signal: i32) -> bool {
    let stays = [
        libc::SIGCHLD,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGSTOP,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ];
    (1..=64).contains(&signal) && !stays.contains(&signal)
}
