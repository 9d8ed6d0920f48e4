//! One connection: its stream, its session, and the bytes that wait to be written or answered.
//!
//! Nothing here blocks. The stub stops answering a client that does not read, and drops it if it
//! takes no byte for too long. Notifications are bounded where they arise.

use std::time::{Duration, Instant};

use crate::comm::Stream;
use crate::session::debuggee::Debuggee;
use crate::session::{Outcome, Session};

/// Time without a successful write after which a client counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for which the program waits for a client that takes no byte.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Base of the interval at which the stub polls the program while the client must drain the buffer.
/// The interval is this, divided by the free share of the buffer: from 40 ms to 1 s.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of notifications that the stub sends to a client before it polls the program
/// again.
const MAX_BATCH_MESSAGES: usize = 64;
/// Maximum number of bytes kept allocated for output, although nothing is to be sent.
const MAX_KEPT: usize = 256 << 10;

/// Bytes that wait to be written.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    /// Number of the first bytes that are written already. Moving the others for each write would
    /// take time in proportion to all that waits.
    written: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Removes the first bytes of the rest.
    fn remove(&mut self, count: usize) {
        self.written += count;
        if self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        if self.bytes.is_empty() {
            self.bytes.shrink_to(MAX_KEPT);
        }
    }
}

/// One client.
pub(crate) struct Client {
    pub(crate) stream: Stream,
    pub(crate) session: Session,
    /// Bytes from the client that the stub handles only after the client has read the earlier
    /// answers.
    unanswered: Vec<u8>,
    unsent: Unsent,
    /// The time since which the client has taken none of the unsent bytes.
    stuck: Option<Instant>,
    /// The connection is closed.
    closed: bool,
}

impl Client {
    /// A new client, and the bytes that it has sent already.
    pub(crate) fn new(stream: Stream, session: Session, sent: Vec<u8>) -> Client {
        Client {
            stream,
            session,
            unanswered: sent,
            unsent: Unsent::default(),
            stuck: None,
            closed: false,
        }
    }

    /// True if the stub reads from this client.
    pub(crate) fn is_read(&self) -> bool {
        self.unsent.is_empty()
    }

    /// True if the client still has to read something.
    pub(crate) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The time at which the stub gives up the client, or must send a notification.
    pub(crate) fn due(&self, debuggee: &Debuggee) -> Option<Instant> {
        match self.stuck {
            Some(since) => Some(since + WRITE_TIMEOUT),
            None => {
                let due = debuggee.notifications_due(self.session.role());
                due.into_iter()
                    .chain(self.session.kernel_records_due())
                    .min()
            }
        }
    }

    /// Reads and answers. All clients share `buffer`. Returns true if there may be more to read.
    pub(crate) fn listen(&mut self, debuggee: &mut Debuggee, buffer: &mut [u8]) -> bool {
        match self.stream.read(buffer) {
            None => return false,
            Some(0) => {
                self.closed = true;
                return false;
            }
            Some(got) => self.unanswered.extend_from_slice(&buffer[..got]),
        }
        self.answer(debuggee);
        self.unanswered.is_empty()
    }

    /// Answers pending packets as long as the output can be written.
    pub(crate) fn answer(&mut self, debuggee: &mut Debuggee) {
        while self.unsent.is_empty() && !self.unanswered.is_empty() && !self.session.is_over() {
            let taken = self.session.feed(debuggee, &self.unanswered);
            self.unanswered.drain(..taken);
            self.write();
        }
    }

    /// Sends due notifications, unless the client is behind.
    pub(crate) fn notify(&mut self, debuggee: &mut Debuggee) {
        if self.is_behind() {
            self.session.check_backlog(debuggee);
            return self.write();
        }
        // Repeat as long as the client keeps up, because hits arrive while nothing is sent.
        for _ in 0..MAX_BATCH_MESSAGES {
            self.session.notify(debuggee, false);
            self.write();
            let due = debuggee.notifications_due(self.session.role());
            if self.is_behind() || due.is_none_or(|due| due > Instant::now()) {
                break;
            }
        }
        self.session.notify_stops(debuggee);
        self.write();
    }

    /// True if the stub should not poll the program yet, because this client must read first
    /// (docs/reference/protocol.md, "Draining") or a thread must stop before its creation can be
    /// sent. The less room the buffer has, the longer this lasts.
    pub(crate) fn holds_up(&self, debuggee: &Debuggee, polled: Instant) -> bool {
        let role = self.session.role();
        let left = debuggee.family.processes();
        let Some(left) = left.filter_map(|tracee| tracee.backed_up(role)).min() else {
            return false;
        };
        if self.is_behind() {
            return self.stuck.is_none_or(|since| since.elapsed() < MAX_WAIT);
        }
        // The client has read everything, so send more first.
        let due = debuggee.notifications_due(role);
        due.is_some_and(|due| due <= Instant::now())
            || polled.elapsed() < POLL_INTERVAL * 100 / left.clamp(2, 50)
    }

    /// Writes as much as possible.
    pub(crate) fn write(&mut self) {
        self.session.take_output(&mut self.unsent.bytes);
        if self.unsent.is_empty() {
            return;
        }
        match self.stream.write(self.unsent.rest()) {
            None => self.closed = true,
            Some(0) => {
                let since = *self.stuck.get_or_insert_with(Instant::now);
                if since.elapsed() >= WRITE_TIMEOUT {
                    self.session.give_up();
                }
            }
            Some(done) => {
                self.unsent.remove(done);
                self.stuck = (!self.unsent.is_empty()).then(Instant::now);
            }
        }
    }

    /// True if the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes the bytes that another client on the same line has sent.
    pub(crate) fn take_next(&mut self) -> Vec<u8> {
        let mut sent = self.session.take_greeting();
        sent.append(&mut self.unanswered);
        sent
    }

    /// True if the client can be removed: the connection is closed, or the session is over and
    /// everything is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.closed
            || match self.session.outcome() {
                Some(Outcome::NotReading | Outcome::Superseded) => true,
                Some(Outcome::Refused) => self.unsent.is_empty(),
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_removed_from_the_front() {
        let mut unsent = Unsent::default();
        assert!(unsent.is_empty());
        unsent.bytes.extend(0..10);
        unsent.remove(3);
        assert_eq!(unsent.rest(), [3, 4, 5, 6, 7, 8, 9]);
        unsent.bytes.push(10);
        unsent.remove(4);
        assert_eq!(unsent.rest(), [7, 8, 9, 10]);
        unsent.remove(4);
        assert!(unsent.is_empty() && unsent.bytes.is_empty());
    }
}
