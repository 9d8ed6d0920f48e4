//! Signals that end the process: clients that ask for it can read the threads before the signal is
//! delivered.
//!
//! The default action of most signals ends the process. What the process handles or ignores the
//! kernel says (`SigCgt` and `SigIgn` in proc(5)). The client in control gets a stop, even if it
//! asked for the signal to be passed; an observer has the thread wait, as at a tracepoint (`hold`).

use crate::sys::{Tid, status_field};

use super::Tracee;
use crate::subscription::role::Role;

impl Tracee {
    /// Whether the client in control wants a stop before this signal ends the process.
    pub(super) fn is_fatal_for_control(&self, signal: i32) -> bool {
        self.stop_policy.fatal && self.is_fatal(signal)
    }

    /// Has a thread wait for the observers that want to know before this signal ends the process.
    /// Whether there are any.
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

    /// Whether a signal that is about to be delivered ends the process.
    fn is_fatal(&self, signal: i32) -> bool {
        if !ends_by_default(signal) {
            return false;
        }
        let status = String::from_utf8(self.process.read_proc("status")).unwrap_or_default();
        let is_in = |set: &str| {
            let mask: Option<String> = status_field(&status, set);
            let mask = mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
            // Of a process that says nothing, nothing is claimed.
            mask.is_none_or(|mask| mask >> (signal - 1) & 1 != 0)
        };
        !is_in("SigCgt") && !is_in("SigIgn")
    }
}

/// Whether the default action of a signal is to end the process (signal(7)).
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
