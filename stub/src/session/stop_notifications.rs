//! Stops as notifications (GDB manual, "Notification Packets"). The stub sends one, and the client
//! requests the others with `vStopped`. The stub sends the next notification only after the client
//! has seen all of them.

use std::collections::VecDeque;

use crate::ptrace::stop::{Cause, Stop};
use crate::sys::Tid;

/// The stops that a client has not seen.
#[derive(Default)]
pub(super) struct StopNotifications {
    /// The client has been sent the first entry.
    queue: VecDeque<(Stop, Vec<u8>)>,
}

impl StopNotifications {
    /// Adds a stop and its stop reply. Returns the body of a notification if one must be sent.
    pub(super) fn push(&mut self, stop: &Stop, reply: Vec<u8>) -> Option<Vec<u8>> {
        let first = self.queue.is_empty();
        let notice = first.then(|| [b"Stop:", &reply[..]].concat());
        self.queue.push_back((stop.clone(), reply));
        notice
    }

    /// Removes the first stop, which the client has seen, and returns the next one.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.queue.pop_front();
        self.queue.front().map(|(_, reply)| reply.clone())
    }

    /// Returns the first stop again.
    pub(super) fn first(&self) -> Option<Vec<u8>> {
        self.queue.front().map(|(_, reply)| reply.clone())
    }

    /// True if a stop of this thread is queued, or the fork that created its process. The client
    /// may not resume such a thread yet.
    pub(super) fn hold(&self, tid: Tid) -> bool {
        self.queue.iter().any(|(stop, _)| match stop {
            Stop::Thread(other, Cause::Fork(child) | Cause::VFork(child)) => {
                *other == tid || *child == tid
            }
            Stop::Thread(other, _) => *other == tid,
            _ => false,
        })
    }

    /// Drops all stops.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}
