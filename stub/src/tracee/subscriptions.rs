//! What the subscriptions of clients mean for the whole process.

use crate::subscription::role::Role;
use crate::subscription::thread_log::ThreadLog;
use crate::tracepoint::experiment::{Ended, Experiment};

use super::Tracee;

/// The program waits for a client that has not been sent this many creations and ends of threads.
const MAX_UNSENT_THREADS: usize = 10_000;

impl Tracee {
    /// A client's trace.
    pub(crate) fn trace(&mut self, role: Role) -> &mut Experiment {
        &mut self.subscriptions.of(role).trace
    }

    /// A client is gone: nothing is done for it any more.
    pub(crate) fn unsubscribe(&mut self, role: Role) {
        if self.subscriptions.get(role).is_none() {
            return;
        }
        self.stop_trace(role, Ended::Disconnected);
        self.subscriptions.remove(role);
        self.release_all(role);
        self.agree_on_budget();
    }

    /// How much room is left, in hundredths of the buffer, if the program is to wait for the
    /// client: more than half of the buffer is full and nothing may be lost, or too many needed
    /// frames or threads that came and went wait to be sent.
    pub(crate) fn backed_up(&self, role: Role) -> Option<u32> {
        let subscription = self.subscriptions.get(role)?;
        let trace = &subscription.trace;
        let left = trace.buffer.free() * 100 / trace.buffer.size().max(1);
        let waits = trace.running && trace.waits && left < 50;
        let threads = subscription.log.as_ref().map_or(0, ThreadLog::len);
        let needed = trace.running && trace.drained && trace.buffer.reserve_is_short();
        (waits || needed || threads > MAX_UNSENT_THREADS).then_some(left as u32)
    }
}
