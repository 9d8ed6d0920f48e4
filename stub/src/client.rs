//! One connection: its stream, its conversation, and what is still to be written and to be
//! answered.
//!
//! Nothing here waits for the client. One that does not read is not answered further, and is
//! dropped when it has not taken a byte for too long; whatever it is told without asking is bounded
//! where it comes from.

use std::time::{Duration, Instant};

use crate::comm::Stream;
use crate::session::debuggee::Debuggee;
use crate::session::{Outcome, Session};

/// Time without a successful write after which a client counts as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// A program waits no longer for a client that takes nothing.
const PAUSE: Duration = Duration::from_secs(5);
/// So seldom the program is looked after when half of its buffer is full and waits for something;
/// the more seldom the less is left.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// So often a client is told something before the program is looked after again.
const MAX_BATCH_MESSAGES: usize = 64;

/// A client.
pub(crate) struct Client {
    pub(crate) stream: Stream,
    pub(crate) session: Session,
    /// What it sent and what has not been answered, for it must read first.
    unanswered: Vec<u8>,
    unsent: Vec<u8>,
    /// Since when it has taken nothing of that.
    stuck: Option<Instant>,
    /// The connection is no more.
    closed: bool,
}

impl Client {
    /// One that has just come, and what it has sent already.
    pub(crate) fn new(stream: Stream, session: Session, sent: Vec<u8>) -> Client {
        Client {
            stream,
            session,
            unanswered: sent,
            unsent: Vec::new(),
            stuck: None,
            closed: false,
        }
    }

    /// Whether what it sends is read.
    pub(crate) fn is_heard(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether something waits for it to read.
    pub(crate) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// When it is to be given up, or told something.
    pub(crate) fn due(&self, debuggee: &Debuggee) -> Option<Instant> {
        match self.stuck {
            Some(since) => Some(since + WRITE_TIMEOUT),
            None => {
                let due = debuggee.notifications_due(self.session.role());
                due.into_iter().chain(self.session.schedule_due()).min()
            }
        }
    }

    /// Reads and answers. `buffer` is for everybody. Whether there may be more to read.
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

    /// Answers what can be answered, and writes what can be written.
    pub(crate) fn answer(&mut self, debuggee: &mut Debuggee) {
        while self.unsent.is_empty() && !self.unanswered.is_empty() && !self.session.is_over() {
            let taken = self.session.feed(debuggee, &self.unanswered);
            self.unanswered.drain(..taken);
            self.write();
        }
    }

    /// Tells what there is to tell, if there is room.
    pub(crate) fn notify(&mut self, debuggee: &mut Debuggee) {
        if self.is_behind() {
            self.session.check_backlog(debuggee);
            return self.write();
        }
        // As much as it takes: hits come in while nothing is sent.
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

    /// Whether the program is to wait for this client to read (docs/reference/protocol.md,
    /// "Draining"), or for a thread of which it must be told before anything else: then the program
    /// is looked after the more seldom the less room there is.
    pub(crate) fn holds_up(&self, debuggee: &Debuggee, looked: Instant) -> bool {
        let role = self.session.role();
        let left = debuggee.family.processes();
        let Some(left) = left.filter_map(|tracee| tracee.backed_up(role)).min() else {
            return false;
        };
        if self.is_behind() {
            return self.stuck.is_none_or(|since| since.elapsed() < PAUSE);
        }
        // It has read all that it was sent: first it is sent more.
        let due = debuggee.notifications_due(role);
        due.is_some_and(|due| due <= Instant::now())
            || looked.elapsed() < POLL_INTERVAL * 100 / left.clamp(2, 50)
    }

    /// Writes what can be written.
    pub(crate) fn write(&mut self) {
        let output = self.session.take_output();
        if self.unsent.is_empty() {
            self.unsent = output;
        } else {
            self.unsent.extend_from_slice(&output);
        }
        if self.unsent.is_empty() {
            return;
        }
        match self.stream.write(&self.unsent) {
            None => self.closed = true,
            Some(0) => {
                let since = *self.stuck.get_or_insert_with(Instant::now);
                if since.elapsed() >= WRITE_TIMEOUT {
                    self.session.give_up();
                }
            }
            Some(done) if done == self.unsent.len() => {
                self.unsent = Vec::new();
                self.stuck = None;
            }
            Some(done) => {
                self.unsent.drain(..done);
                self.stuck = Some(Instant::now());
            }
        }
    }

    /// Whether the connection is no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// What another client at the same line has sent.
    pub(crate) fn take_next(&mut self) -> Vec<u8> {
        let mut sent = self.session.take_greeting();
        sent.append(&mut self.unanswered);
        sent
    }

    /// Whether it is to go: the connection is no more, or all has been said.
    pub(crate) fn is_done(&self) -> bool {
        self.closed
            || match self.session.outcome() {
                Some(Outcome::NotReading | Outcome::Superseded) => true,
                Some(Outcome::Refused) => self.unsent.is_empty(),
                _ => false,
            }
    }
}
