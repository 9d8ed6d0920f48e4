//! When it is decided anew where jumps can be.
//!
//! For that all tracepoints are looked at, and everybody stands still. Clients change them one by one, a hundred in a row: in a program
//! that goes each has its trap at once, and all together get their jumps when no more changes come, or when the client asks how they stand.
//! A program that stands is settled when it goes on.

use std::time::{Duration, Instant};

use super::Tracee;

/// The client has done when it has changed nothing for so long. (One round trip; it is longer to a slow board.)
const QUIET: Duration = Duration::from_millis(20);
/// So many times as long as it took last the program goes before the next time, however slowly the changes come.
const REST: u32 = 4;
/// So often it is tried again where a thread was in the way, each time after twice the time.
const TRIES: u32 = 6;

/// Whether something has changed since it was decided last.
#[derive(Default)]
pub(super) struct JumpPlacement {
    due: Option<Instant>,
    rests_until: Option<Instant>,
    tries: u32,
}

impl JumpPlacement {
    /// It is decided now.
    pub(super) fn done(&mut self) {
        self.due = None;
    }

    /// Somewhere a thread was in the way, which will have moved.
    pub(super) fn try_again(&mut self) {
        if self.tries < TRIES {
            self.due = Some(Instant::now() + QUIET * (1 << self.tries));
            self.tries += 1;
        }
    }
}

impl Tracee {
    /// Something has changed that decides where jumps can be.
    pub(super) fn schedule_placement(&mut self) {
        if self.going && (!self.jump_pads.is_empty() || self.subscriptions.want_fast()) {
            self.jump_placement.tries = 0;
            let quiet = Instant::now() + QUIET;
            self.jump_placement.due = Some(
                self.jump_placement
                    .rests_until
                    .map_or(quiet, |t| t.max(quiet)),
            );
        }
    }

    /// When that is to be decided.
    pub(crate) fn placement_due(&self) -> Option<Instant> {
        self.jump_placement.due.filter(|_| self.going)
    }

    pub(super) fn place_if_due(&mut self) {
        if self
            .placement_due()
            .is_some_and(|due| due <= Instant::now())
        {
            self.settle();
        }
    }

    /// Has everything be as it will be while the program goes.
    pub(crate) fn place_pending_jumps(&mut self) {
        let as_it_was = self.going && self.jump_placement.due.is_none();
        if !as_it_was && self.end.is_none() && self.is_tracing() {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let since = Instant::now();
        // Where a trap cannot be, nothing can be executed.
        let _ = self.standing_still(Tracee::complete_probes);
        self.jump_placement.rests_until = Some(Instant::now() + REST * since.elapsed());
    }
}
