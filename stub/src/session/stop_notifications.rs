//! Stops as notifications (GDB manual, "Notification Packets"): one is sent, the client asks for
//! the others with `vStopped`, and nothing more is sent before it has seen them all.

use std::collections::VecDeque;

use crate::ptrace::stop::{Cause, Stop};
use crate::sys::Tid;

/// The stops a client has not seen.
#[derive(Default)]
pub(super) struct StopNotifications {
    /// The first one has been sent.
    queue: VecDeque<(Stop, Vec<u8>)>,
}

impl StopNotifications {
    /// Adds a stop and the reply that says it. The body of a notification, if one is to be sent.
    pub(super) fn push(&mut self, stop: &Stop, reply: Vec<u8>) -> Option<Vec<u8>> {
        let first = self.queue.is_empty();
        let notice = first.then(|| [b"Stop:", &reply[..]].concat());
        self.queue.push_back((stop.clone(), reply));
        notice
    }

    /// The client has seen the first; the next one.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.queue.pop_front();
        self.queue.front().map(|(_, reply)| reply.clone())
    }

    /// The one that the client was told last, again.
    pub(super) fn first(&self) -> Option<Vec<u8>> {
        self.queue.front().map(|(_, reply)| reply.clone())
    }

    /// Whether a stop of this thread is among them, or the making of its process: it is not the
    /// client's yet to resume.
    pub(super) fn hold(&self, tid: Tid) -> bool {
        self.queue.iter().any(|(stop, _)| match stop {
            Stop::Thread(other, Cause::Fork(child) | Cause::VFork(child)) => {
                *other == tid || *child == tid
            }
            Stop::Thread(other, _) => *other == tid,
            _ => false,
        })
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}
