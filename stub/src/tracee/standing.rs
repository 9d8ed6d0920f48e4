//! When threads stood for far longer than it takes to deal with what they had to report.
//!
//! That is so where this process has to wait for a processor, or takes it upon itself to stop everybody. Who holds a lock meanwhile keeps
//! others waiting, and that is not the program's doing; clients that record are told.

use super::process::Process;

/// So many times are kept apart for a client that does not hear them.
const MOST: usize = 1000;

impl Process {
    /// See [`Family::turn_ends`](super::family::Family::turn_ends).
    pub(super) fn turn_ends(&mut self, turn: Option<(u64, u64)>) {
        let stood = std::mem::take(&mut self.stood);
        if let Some((from, to)) = turn.filter(|_| stood) {
            self.have_stood(from, to);
        }
    }

    /// Some thread may have stood from one moment to the other.
    pub(super) fn have_stood(&mut self, from: u64, to: u64) {
        for (_, interest) in self.interests.each() {
            if !interest.trace.running || !interest.trace.drained {
                continue;
            }
            let is_full = interest.stood.len() >= MOST;
            match interest.stood.last_mut() {
                Some(last) if is_full => last.1 = to,
                _ => interest.stood.push((from, to)),
            }
        }
    }
}
