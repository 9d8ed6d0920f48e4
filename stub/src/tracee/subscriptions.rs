//! Applies the subscriptions of clients to the whole process.

use crate::subscription::role::Role;
use crate::subscription::thread_log::ThreadLog;
use crate::tracepoint::experiment::{Ended, Experiment};

use super::Tracee;

/// Number of unsent creations and ends of threads above which the program waits for the client.
const MAX_UNSENT_THREADS: usize = 10_000;

impl Tracee {
    /// A client's trace.
    pub(crate) fn trace(&mut self, role: Role) -> &mut Experiment {
        &mut self.subscriptions.of(role).trace
    }

    /// Ends everything that the stub does for a client that is gone.
    pub(crate) fn unsubscribe(&mut self, role: Role) {
        if self.subscriptions.get(role).is_none() {
            return;
        }
        self.stop_trace(role, Ended::Disconnected);
        self.subscriptions.remove(role);
        self.release_all(role);
        self.agree_on_budget();
    }

    /// The free part of the buffer in percent, if the program must wait for the client. It must
    /// wait if nothing may be lost and more than half of the buffer is full, or if too many needed
    /// frames or thread events are unsent.
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
