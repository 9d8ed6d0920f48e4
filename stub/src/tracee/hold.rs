//! Threads that wait for an observer, a moment at most, while everybody else runs on.
//!
//! Some hits must not be passed before the observer has done something about them: it plants tracepoints in a library
//! that has just been loaded, or reads a stack that is too long to be noted. No stop is reported for that, to
//! nobody: the thread stands where it trapped until the observer lets it go or the time is over, for no client may hold up the
//! program. An observer on a slow or busy machine gets seconds for it, anew with everything that it says, for it may have much to plant; one
//! that let them pass in silence gets moments until it is in time again.

use std::time::{Duration, Instant};

use crate::sys::{Tid, monotonic_ns};

use super::Tracee;
use crate::subscription::hold::Hold;
use crate::subscription::role::Role;
use crate::subscription::stalls::Cause;

/// No thread waits longer for a client that is silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nor longer than this for one that was late.
const PATIENCE_WITH_LATE: Duration = Duration::from_millis(250);
/// Nor longer than this for anybody.
const LONGEST: Duration = Duration::from_secs(60);

impl Tracee {
    /// Has a thread, which is stopped, wait for this observer. `at`: the trap at which it stands.
    pub(super) fn hold(&mut self, tid: Tid, role: Role, at: Option<u64>) {
        let subscription = self.subscriptions.of(role);
        subscription
            .held
            .push((tid, at.unwrap_or(0), Instant::now()));
        self.hold_untold(tid, role, at);
    }

    /// The same; the observer is told in another way.
    pub(super) fn hold_untold(&mut self, tid: Tid, role: Role, at: Option<u64>) {
        let now = Instant::now();
        let hold = self.holds.entry(tid).or_insert(Hold {
            roles: Vec::new(),
            since: now,
            until: now,
            at,
        });
        hold.roles.push(role);
        self.heard(role);
    }

    /// An observer has said something: it is at work.
    pub(crate) fn heard(&mut self, role: Role) {
        if self.holds.is_empty() {
            return;
        }
        let late = self.subscriptions.get(role).is_some_and(|i| i.late);
        let patience = if late { PATIENCE_WITH_LATE } else { PATIENCE };
        let until = Instant::now() + patience;
        let holds = self.holds.values_mut();
        for hold in holds.filter(|hold| hold.roles.contains(&role)) {
            hold.until = hold.until.max(until.min(hold.since + LONGEST));
        }
    }

    /// Whether a thread waits for an observer.
    pub(crate) fn is_held(&self, tid: Tid) -> bool {
        self.holds.contains_key(&tid)
    }

    /// An observer lets a thread go. Whether it was held for it.
    pub(crate) fn release(&mut self, tid: Tid, role: Role) -> bool {
        let Some(hold) = self.holds.get_mut(&tid) else {
            return false;
        };
        let before = hold.roles.len();
        hold.roles.retain(|other| *other != role);
        let was = hold.roles.len() < before;
        if hold.roles.is_empty() {
            self.let_go(tid);
        }
        if was && let Some(subscription) = self.subscriptions.known(role) {
            subscription.late = false;
        }
        was
    }

    /// An observer lets all threads go.
    pub(super) fn release_all(&mut self, role: Role) {
        let tids: Vec<Tid> = self.holds.keys().copied().collect();
        for tid in tids {
            self.release(tid, role);
        }
    }

    /// Lets go whoever has waited long enough.
    pub(super) fn release_overdue(&mut self) {
        if self.holds.is_empty() {
            return;
        }
        let now = Instant::now();
        let holds = self.holds.iter();
        let overdue: Vec<Tid> = holds
            .filter(|(_, hold)| hold.until <= now)
            .map(|(tid, _)| *tid)
            .collect();
        for tid in overdue {
            let roles = self.holds.get(&tid).map(|hold| hold.roles.clone());
            for role in roles.unwrap_or_default() {
                if let Some(subscription) = self.subscriptions.known(role) {
                    subscription.late = true;
                }
            }
            self.let_go(tid);
        }
    }

    /// When a thread is to be let go.
    pub(crate) fn release_due(&self) -> Option<Instant> {
        self.holds.values().map(|hold| hold.until).min()
    }

    fn let_go(&mut self, tid: Tid) {
        let Some(hold) = self.holds.remove(&tid) else {
            return;
        };
        let now = monotonic_ns();
        let held = u64::try_from(hold.since.elapsed().as_nanos()).unwrap_or(0);
        self.have_stood(now.saturating_sub(held), now, Cause::Late);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        // What it is to report comes first.
        let free = self.going && !self.halting && thread.pending.is_empty();
        let pc = thread.stopped().and_then(|stopped| stopped.pc().ok());
        match hold.at {
            // Halted, it traps there once more when it is resumed, and that is dealt with.
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

    /// The process has executed a file: whoever traces it begins anew, before the program does.
    pub(super) fn executed_file(&mut self, tid: Tid, path: &str) {
        self.holds.clear();
        let mut waiting = Vec::new();
        for (role, subscription) in self.subscriptions.each() {
            if let Some(log) = &mut subscription.log {
                log.complete();
            }
            subscription.held.clear();
            if subscription.trace.running && matches!(role, Role::Observer(_)) {
                waiting.push(role);
            }
            subscription
                .trace
                .stop(crate::tracepoint::experiment::Ended::Gone);
            subscription.executed = Some(path.to_owned());
        }
        for role in waiting {
            self.hold(tid, role, None);
        }
    }
}
