//! What clients have asked for beside stops, as far as the whole process is concerned.

use crate::subscription::role::Role;
use crate::subscription::thread_log::Log;
use crate::tracepoint::experiment::{Ended, Experiment};

use super::Tracee;

/// The program waits for a client that has so many creations and ends of threads still to hear of.
const MAX_UNTOLD_THREADS: usize = 10_000;

impl Tracee {
    /// Whether anybody's trace runs.
    pub(super) fn is_tracing(&self) -> bool {
        self.subscriptions
            .0
            .values()
            .any(|subscription| subscription.trace.running)
    }

    /// A client's trace.
    pub(crate) fn trace(&mut self, role: Role) -> &mut Experiment {
        &mut self.subscriptions.of(role).trace
    }

    /// Whether anybody observes it who has asked for something.
    pub(crate) fn is_observed(&self) -> bool {
        self.subscriptions
            .0
            .keys()
            .any(|role| *role != Role::Control)
    }

    /// A client is gone, and with it all that it wanted to know.
    pub(crate) fn unsubscribe(&mut self, role: Role) {
        if self.subscriptions.get(role).is_none() {
            return;
        }
        self.stop_trace(role, Ended::Disconnected);
        self.subscriptions.remove(role);
        self.release_all(role);
        self.agree_on_budget();
    }
}

impl Tracee {
    /// How much room is left, in hundredths of the buffer, if the program is to wait for the
    /// client: more than half of the buffer is full and nothing may be lost, or too many needed
    /// frames or threads that came and went wait to be sent.
    pub(crate) fn backed_up(&self, role: Role) -> Option<u32> {
        let subscription = self.subscriptions.get(role)?;
        let trace = &subscription.trace;
        let left = trace.buffer.free() * 100 / trace.buffer.size().max(1);
        let waits = trace.running && trace.waits && left < 50;
        let threads = subscription.log.as_ref().map_or(0, Log::len);
        let needed = trace.running && trace.drained && trace.buffer.reserve_is_short();
        (waits || needed || threads > MAX_UNTOLD_THREADS).then_some(left as u32)
    }
}
