//! Holds: threads that wait for an observer while all others run.
//!
//! At some hits an observer must act before the thread continues: it plants tracepoints in a
//! library that was just loaded, or reads a stack that is too long to record. The stub reports no
//! stop for such a hit. It holds the thread at its trap until the observer releases the thread, or
//! until a timeout, so that no client can block the program. Every packet of the observer extends
//! the timeout. After an observer has missed a timeout, its timeouts are short until it releases a
//! thread in time again.

use std::time::{Duration, Instant};

use crate::sys::Tid;

use super::Subscriptions;
use super::role::Role;

/// Maximum time for which a thread waits for a silent observer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait for a silent observer that missed its last timeout.
const LATE_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum duration of a hold, even if the observer keeps sending.
const MAX_HOLD: Duration = Duration::from_secs(60);

/// One held thread.
pub(crate) struct Hold {
    /// The observers that the thread waits for.
    roles: Vec<Role>,
    pub(crate) since: Instant,
    until: Instant,
    /// The address of the trap at which the thread is stopped and which it must still pass.
    pub(crate) at: Option<u64>,
}

impl Subscriptions {
    /// Holds a stopped thread for this observer, and reports the hold to it. `at` is the address of
    /// the trap at which the thread is stopped.
    pub(crate) fn hold(&mut self, tid: Tid, role: Role, at: Option<u64>) {
        let held = &mut self.of(role).held;
        held.push((tid, at.unwrap_or(0), Instant::now()));
        self.hold_unreported(tid, role, at);
    }

    /// Holds a stopped thread for this observer, which learns of the hold in another way.
    pub(crate) fn hold_unreported(&mut self, tid: Tid, role: Role, at: Option<u64>) {
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

    /// Extends the holds of an observer that has just sent a packet.
    pub(crate) fn heard(&mut self, role: Role) {
        if self.holds.is_empty() {
            return;
        }
        let late = self.get(role).is_some_and(|it| it.late);
        let timeout = if late { LATE_TIMEOUT } else { TIMEOUT };
        let until = Instant::now() + timeout;
        let holds = self.holds.values_mut();
        for hold in holds.filter(|hold| hold.roles.contains(&role)) {
            hold.until = hold.until.max(until.min(hold.since + MAX_HOLD));
        }
    }

    /// True if the thread waits for an observer.
    pub(crate) fn is_held(&self, tid: Tid) -> bool {
        self.holds.contains_key(&tid)
    }

    /// The threads that wait for observers.
    pub(crate) fn held_tids(&self) -> Vec<Tid> {
        self.holds.keys().copied().collect()
    }

    /// Ends a thread's hold for one observer. Returns true if there was one, and the hold itself if
    /// the thread waits for no other observer.
    pub(crate) fn release(&mut self, tid: Tid, role: Role) -> (bool, Option<Hold>) {
        let Some(hold) = self.holds.get_mut(&tid) else {
            return (false, None);
        };
        let before = hold.roles.len();
        hold.roles.retain(|other| *other != role);
        let was = hold.roles.len() < before;
        let over = match hold.roles.is_empty() {
            true => self.holds.remove(&tid),
            false => None,
        };
        if was && let Some(subscription) = self.known(role) {
            subscription.late = false;
        }
        (was, over)
    }

    /// Removes a hold that has timed out, and marks its observers as late.
    pub(crate) fn take_overdue(&mut self) -> Option<(Tid, Hold)> {
        if self.holds.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut overdue = self.holds.extract_if(.., |_, hold| hold.until <= now);
        let (tid, hold) = overdue.next()?;
        drop(overdue);
        for role in &hold.roles {
            if let Some(subscription) = self.known(*role) {
                subscription.late = true;
            }
        }
        Some((tid, hold))
    }

    /// The time at which the next hold times out.
    pub(crate) fn release_due(&self) -> Option<Instant> {
        self.holds.values().map(|hold| hold.until).min()
    }

    /// Drops all state of a thread that is gone.
    pub(crate) fn forget_thread(&mut self, tid: Tid) {
        self.holds.remove(&tid);
        self.end_series(tid);
    }
}
