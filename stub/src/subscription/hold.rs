//! Threads that wait for an observer while all others run.
//!
//! An observer must act before some hits are passed: it plants tracepoints in a library that has
//! just been loaded, or reads a stack that is too long to be noted. No stop is reported for that.
//! The thread stands where it trapped until the observer lets it go, or until a timeout: no client
//! may hold up the program. Every packet of the observer extends the timeout. After an observer has
//! let it pass in silence, the timeout is short until the observer is in time again.

use std::time::{Duration, Instant};

use crate::sys::Tid;

use super::Subscriptions;
use super::role::Role;

/// The longest silence of an observer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest silence of an observer that was late the last time.
const LATE_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest hold of all.
const MAX_HOLD: Duration = Duration::from_secs(60);

/// Why a thread does not run.
pub(crate) struct Hold {
    /// The observers that it waits for.
    roles: Vec<Role>,
    pub(crate) since: Instant,
    until: Instant,
    /// The trap at which it stands, and which it must still be taken past.
    pub(crate) at: Option<u64>,
}

impl Subscriptions {
    /// Has a stopped thread wait for this observer, and tells the observer. `at`: the trap at which
    /// it stands.
    pub(crate) fn hold(&mut self, tid: Tid, role: Role, at: Option<u64>) {
        let held = &mut self.of(role).held;
        held.push((tid, at.unwrap_or(0), Instant::now()));
        self.hold_unreported(tid, role, at);
    }

    /// Has a stopped thread wait for this observer, which learns of it in another way.
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

    /// An observer has sent a packet: it is at work.
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

    /// Whether a thread waits for an observer.
    pub(crate) fn is_held(&self, tid: Tid) -> bool {
        self.holds.contains_key(&tid)
    }

    /// The threads that wait for observers.
    pub(crate) fn held_tids(&self) -> Vec<Tid> {
        self.holds.keys().copied().collect()
    }

    /// An observer lets a thread go: whether it was held for that observer, and the hold if it
    /// waits for no other.
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

    /// Takes out a hold whose time is over. Its observers are late.
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

    /// When the next hold is over.
    pub(crate) fn release_due(&self) -> Option<Instant> {
        self.holds.values().map(|hold| hold.until).min()
    }

    /// A thread is gone: nothing of it is held or recorded any more.
    pub(crate) fn forget_thread(&mut self, tid: Tid) {
        self.holds.remove(&tid);
        self.end_series(tid);
    }
}
