//! When threads of the program were stopped for the stub or its clients.

use crate::subscription::stalls::{Cause, LONG_STOP_NS, MAX_STALLS, Stall};

use super::Tracee;

impl Tracee {
    /// A turn of the event loop is over that lasted from one moment to the other.
    pub(super) fn turn_ends(&mut self, (from, to): (u64, u64)) {
        if std::mem::take(&mut self.has_stopped_threads) {
            match to.saturating_sub(from) {
                short if short < LONG_STOP_NS => self.subscriptions.stopped_shortly(short),
                _ => self.have_stood(from, to, Cause::Late),
            }
        }
        if !self.going && self.end.is_none() {
            self.halted_since.get_or_insert(from);
        }
    }

    /// The program waited since then, for a client that had to read first.
    pub(super) fn was_held_up(&mut self, from: u64, to: u64) {
        if self.has_stopped_threads {
            self.have_stood(from, to, Cause::Late);
        }
    }

    /// Threads are about to go on that were halted for a client.
    pub(super) fn halt_ends(&mut self, now: u64) {
        if let Some(since) = self.halted_since.take() {
            self.have_stood(since, now, Cause::Halted);
        }
    }

    /// Some thread may have been stopped from one moment to the other.
    pub(super) fn have_stood(&mut self, from: u64, to: u64, cause: Cause) {
        let stall = Stall { from, to, cause };
        let mut any = false;
        for stalls in self.subscriptions.stalls() {
            stalls.add(stall);
            any = true;
        }
        if !any && self.early_stalls.len() < MAX_STALLS {
            self.early_stalls.push(stall);
        }
    }

    /// A client that drains its trace begins: it learns of the stops that it was prepared in.
    pub(super) fn hand_out_early_stalls(&mut self) {
        let early = std::mem::take(&mut self.early_stalls);
        for stalls in self.subscriptions.stalls() {
            early.iter().for_each(|stall| stalls.add(*stall));
        }
    }
}
