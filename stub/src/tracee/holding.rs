//! Threads that wait for an observer, a moment at most, while everybody else runs on.
//!
//! Some hits must not be passed before the observer has done something about them: it plants tracepoints in a library
//! that has just been loaded, or reads a stack that is too long to be noted. No stop is reported for that, to
//! nobody: the thread stands where it trapped until the observer lets it go or the time is over, for no client may hold up the
//! program. An observer on a slow or busy machine gets seconds for it, anew with everything that it says, for it may have much to plant; one
//! that let them pass in silence gets moments until it is in time again.

use std::time::{Duration, Instant};

use crate::sys::{Tid, monotonic_ns};

use super::interest::Seat;
use super::process::Process;
use super::stalls::Cause;

/// No thread waits longer for a client that is silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nor longer than this for one that was late.
const PATIENCE_WITH_LATE: Duration = Duration::from_millis(250);
/// Nor longer than this for anybody.
const LONGEST: Duration = Duration::from_secs(60);

/// Why a thread does not run.
pub(crate) struct Hold {
    /// For whom it waits.
    seats: Vec<Seat>,
    since: Instant,
    until: Instant,
    /// The trap at which it stands, which it is still to be taken past.
    at: Option<u64>,
}

impl Process {
    /// Has a thread, which is stopped, wait for this observer. `at`: the trap at which it stands.
    pub(super) fn hold(&mut self, tid: Tid, seat: Seat, at: Option<u64>) {
        let interest = self.interests.of(seat);
        interest.held.push((tid, at.unwrap_or(0), Instant::now()));
        self.hold_untold(tid, seat, at);
    }

    /// The same; the observer is told in another way.
    pub(super) fn hold_untold(&mut self, tid: Tid, seat: Seat, at: Option<u64>) {
        let now = Instant::now();
        let hold = self.holds.entry(tid).or_insert(Hold {
            seats: Vec::new(),
            since: now,
            until: now,
            at,
        });
        hold.seats.push(seat);
        self.heard(seat);
    }

    /// An observer has said something: it is at work.
    pub(crate) fn heard(&mut self, seat: Seat) {
        if self.holds.is_empty() {
            return;
        }
        let late = self.interests.get(seat).is_some_and(|i| i.late);
        let patience = if late { PATIENCE_WITH_LATE } else { PATIENCE };
        let until = Instant::now() + patience;
        let holds = self.holds.values_mut();
        for hold in holds.filter(|hold| hold.seats.contains(&seat)) {
            hold.until = hold.until.max(until.min(hold.since + LONGEST));
        }
    }

    /// Whether a thread waits for an observer.
    pub(crate) fn is_held(&self, tid: Tid) -> bool {
        self.holds.contains_key(&tid)
    }

    /// An observer lets a thread go. Whether it was held for it.
    pub(crate) fn release(&mut self, tid: Tid, seat: Seat) -> bool {
        let Some(hold) = self.holds.get_mut(&tid) else {
            return false;
        };
        let before = hold.seats.len();
        hold.seats.retain(|other| *other != seat);
        let was = hold.seats.len() < before;
        if hold.seats.is_empty() {
            self.let_go(tid);
        }
        if was && let Some(interest) = self.interests.known(seat) {
            interest.late = false;
        }
        was
    }

    /// An observer lets all threads go.
    pub(super) fn release_all(&mut self, seat: Seat) {
        let tids: Vec<Tid> = self.holds.keys().copied().collect();
        for tid in tids {
            self.release(tid, seat);
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
            let seats = self.holds.get(&tid).map(|hold| hold.seats.clone());
            for seat in seats.unwrap_or_default() {
                if let Some(interest) = self.interests.known(seat) {
                    interest.late = true;
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
                    self.quiet(tid);
                }
            }
            _ => self.quiet(tid),
        }
    }

    /// The process has executed a file: whoever traces it begins anew, before the program does.
    pub(super) fn executed_file(&mut self, tid: Tid, path: &str) {
        self.holds.clear();
        let mut waiting = Vec::new();
        for (seat, interest) in self.interests.each() {
            if let Some(log) = &mut interest.log {
                log.complete();
            }
            interest.held.clear();
            if interest.trace.running && matches!(seat, Seat::Observer(_)) {
                waiting.push(seat);
            }
            interest.trace.stop(crate::probe::trace::Ended::Gone);
            interest.executed = Some(path.to_owned());
        }
        for seat in waiting {
            self.hold(tid, seat, None);
        }
    }
}
