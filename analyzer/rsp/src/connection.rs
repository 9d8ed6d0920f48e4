//! Packets over a stream: acknowledgements, retransmission, time limits, size limits, the
//! transcript.
//!
//! Separate from the client because scripts also exchange packets. This file ensures that a late
//! answer is never taken for the answer to another request. After any error that leaves an answer
//! outstanding, the connection is *broken* and refuses all further requests.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::packet::{self, Frame, Framer};
use crate::stream::Stream;
use crate::transcript::Writer;

/// Number of times that a packet is sent, or requested, before the line counts as bad.
const MAX_TRIES: u32 = 4;
/// Number of meaningless bytes between packets to skip before the peer counts as no gdb server.
const MAX_GARBAGE: usize = 4096;
/// Number of these bytes to show in the error message.
const MAX_SHOWN_GARBAGE: usize = 48;
/// Maximum number of stored notifications.
const MAX_NOTIFICATIONS: usize = 1 << 16;

/// Options of a connection.
pub struct ConnectionOptions {
    /// Time limit for a connection, an acknowledgement, an answer, or buffer space.
    pub timeout: Duration,
    /// Receives the transcript, see [`crate::transcript`].
    pub log: Option<Box<dyn Write + Send>>,
    /// Maximum length of an accepted packet, in bytes.
    pub max_packet: usize,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        ConnectionOptions {
            timeout: Duration::from_secs(10),
            log: None,
            max_packet: 1 << 20,
        }
    }
}

/// A received packet or notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A packet's payload, with escapes as received.
    Packet(Vec<u8>),
    /// A notification's payload.
    Notification(Vec<u8>),
}

/// One connection to a server.
pub struct Connection {
    stream: Stream,
    framer: Framer,
    timeout: Duration,
    max_packet: usize,
    log: Option<Writer>,
    /// Whether packets are acknowledged. They are until `QStartNoAckMode` is answered.
    acks: bool,
    /// Notifications received while waiting for something else, and their time of arrival.
    notifications: VecDeque<(Instant, Vec<u8>)>,
    /// Console output received before the acknowledgement of a request.
    early: VecDeque<Received>,
    /// The last request, for messages.
    request: String,
    damaged: u32,
    garbage: Vec<u8>,
    skipped: usize,
    any_packet: bool,
    /// Whether a packet, notification or acknowledgement has been received.
    any_frame: bool,
    broken: Option<String>,
    /// The time of the last input.
    heard: Instant,
}

impl Connection {
    /// Connects to a server.
    pub fn connect(endpoint: &Endpoint, options: ConnectionOptions) -> Result<Connection, Error> {
        let stream = endpoint
            .open(options.timeout)
            .map_err(|source| Error::Connect {
                endpoint: endpoint.clone(),
                source,
            })?;
        Connection::over(stream, options)
    }

    /// A connection on a stream that is already connected.
    pub fn over(
        stream: impl Into<Stream>,
        options: ConnectionOptions,
    ) -> Result<Connection, Error> {
        Ok(Connection {
            stream: stream.into(),
            framer: Framer::new(options.max_packet),
            timeout: options.timeout,
            max_packet: options.max_packet,
            log: options.log.map(Writer::new),
            acks: true,
            notifications: VecDeque::new(),
            early: VecDeque::new(),
            request: String::new(),
            damaged: 0,
            garbage: Vec::new(),
            skipped: 0,
            any_packet: false,
            any_frame: false,
            broken: None,
            heard: Instant::now(),
        })
    }

    /// Sends a packet, and waits for its acknowledgement if the connection uses them.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.send_all(&[payload])
    }

    /// Sends packets in one write. With acknowledgements (see [`Connection::has_acks`]), each
    /// packet waits for its own.
    pub fn send_all(&mut self, payloads: &[impl AsRef<[u8]>]) -> Result<(), Error> {
        self.usable()?;
        let mut bytes = Vec::new();
        for payload in payloads {
            let payload = payload.as_ref();
            self.request = shown(payload);
            if let Some(log) = &mut self.log {
                log.sent(payload);
            }
            bytes.extend(packet::frame(payload));
            if self.acks {
                self.deliver(&std::mem::take(&mut bytes))?;
            }
        }
        self.write(&bytes)
    }

    /// Receives the next packet or notification. `Ok(None)` if none came within `timeout` (`None`:
    /// no limit); the connection stays usable.
    pub fn receive(&mut self, timeout: Option<Duration>) -> Result<Option<Received>, Error> {
        self.usable()?;
        if let Some(received) = self.early.pop_front() {
            return Ok(Some(received));
        }
        let deadline = timeout.map(|t| Instant::now() + t);
        while let Some(frame) = self.frame(deadline)? {
            if let Some(received) = self.accept(frame)? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    /// Receives the answer to the last request: the next packet. Stores notifications for
    /// [`take_notifications`](Connection::take_notifications). A timeout breaks the connection,
    /// because the answer may still come.
    pub fn receive_answer(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            match self.receive(Some(self.timeout))? {
                Some(Received::Packet(payload)) => return Ok(payload),
                Some(Received::Notification(payload)) => self.keep(payload),
                None => return Err(self.too_late()),
            }
        }
    }

    /// Stores a notification. If too many are stored, drops the oldest.
    pub(crate) fn keep(&mut self, notification: Vec<u8>) {
        if self.notifications.len() >= MAX_NOTIFICATIONS {
            self.notifications.pop_front();
        }
        self.notifications.push_back((Instant::now(), notification));
    }

    /// The notifications since the last call, in order, and their time of arrival.
    pub fn take_notifications(&mut self) -> Vec<(Instant, Vec<u8>)> {
        self.notifications.drain(..).collect()
    }

    /// Sends the interrupt byte.
    pub fn interrupt(&mut self) -> Result<(), Error> {
        self.usable()?;
        if let Some(log) = &mut self.log {
            log.interrupted();
        }
        self.write(&[0x03])
    }

    /// Sends bytes unchanged, without a frame. For tests of servers.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.usable()?;
        self.write(bytes)
    }

    /// Ends acknowledgements. Call it when `QStartNoAckMode` has been answered with `OK`.
    pub fn end_acks(&mut self) {
        self.acks = false;
    }

    /// Whether packets are acknowledged.
    pub fn has_acks(&self) -> bool {
        self.acks
    }

    /// Whether input was read but not yet received. Polling does not show it.
    pub fn has_input(&self) -> bool {
        !self.early.is_empty() || self.framer.has_frame()
    }

    /// Time since the server last sent something, as far as it has been read.
    pub fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// The time limit of an answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Changes the time limit of an answer.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// The error that made the transcript incomplete, if any.
    pub fn log_failure(&self) -> Option<&io::Error> {
        self.log.as_ref()?.failure()
    }

    fn usable(&self) -> Result<(), Error> {
        match &self.broken {
            None => Ok(()),
            Some(because) => Err(Error::Broken {
                because: because.clone(),
            }),
        }
    }

    /// Writes a framed packet until it is acknowledged.
    fn deliver(&mut self, framed: &[u8]) -> Result<(), Error> {
        for _ in 0..MAX_TRIES {
            self.write(framed)?;
            let deadline = Instant::now() + self.timeout;
            loop {
                let Some(frame) = self.frame(Some(deadline))? else {
                    return Err(self.too_late());
                };
                match frame {
                    Frame::Ack => return Ok(()),
                    Frame::Nack => {
                        self.note("refused as damaged, sent again");
                        break;
                    }
                    frame => match self.accept(frame)? {
                        Some(Received::Packet(payload)) if is_console(&payload) => {
                            self.early.push_back(Received::Packet(payload));
                        }
                        // No request is open, so this packet answers none.
                        Some(Received::Packet(_)) => {
                            self.note("ignored, since it came before the acknowledgement");
                        }
                        Some(Received::Notification(payload)) => self.keep(payload),
                        None => {}
                    },
                }
            }
        }
        let packet = self.request.clone();
        Err(self.fail(Error::Refused {
            packet,
            tries: MAX_TRIES,
        }))
    }

    /// Processes a frame, and acknowledges it where required.
    fn accept(&mut self, frame: Frame) -> Result<Option<Received>, Error> {
        match frame {
            Frame::Packet(payload) => {
                (self.damaged, self.any_packet) = (0, true);
                self.forget_garbage();
                if let Some(log) = &mut self.log {
                    log.received(&payload);
                }
                if self.acks {
                    // A server may close the connection after its last packet, which still counts.
                    let _ = self
                        .stream
                        .write(b"+", Instant::now() + self.timeout, false);
                }
                Ok(Some(Received::Packet(payload)))
            }
            Frame::Notification(payload) => {
                self.forget_garbage();
                if let Some(log) = &mut self.log {
                    log.notified(&payload);
                }
                Ok(Some(Received::Notification(payload)))
            }
            // A second acknowledgement for an answered packet is harmless.
            Frame::Ack | Frame::Nack => Ok(None),
            Frame::Damaged { stated, computed } => {
                self.damaged += 1;
                let tries = self.damaged;
                if !self.acks || tries >= MAX_TRIES {
                    return Err(self.fail(Error::Checksum {
                        tries,
                        stated,
                        computed,
                    }));
                }
                self.note(&format!(
                    "a damaged packet: checksum {stated:02x} stated, {computed:02x} computed"
                ));
                self.write(b"-")?;
                Ok(None)
            }
            Frame::Undecodable { problem, start } => Err(self.fail(Error::Coding {
                problem,
                packet: shown(&start),
            })),
            Frame::Oversized => {
                let limit = self.max_packet;
                Err(self.fail(Error::Oversized { limit }))
            }
            Frame::Interrupt => self.skip(0x03),
            Frame::Garbage(byte) => self.skip(byte),
        }
    }

    /// Skips a byte outside the protocol, up to a limit.
    fn skip(&mut self, byte: u8) -> Result<Option<Received>, Error> {
        self.skipped += 1;
        if self.garbage.len() < MAX_SHOWN_GARBAGE {
            self.garbage.push(byte);
        }
        match self.skipped > MAX_GARBAGE {
            true => Err(self.not_rsp()),
            false => Ok(None),
        }
    }

    fn forget_garbage(&mut self) {
        if self.skipped > 0 {
            self.note(&format!(
                "skipped {} bytes that are not a packet: {}",
                self.skipped,
                shown(&self.garbage)
            ));
            self.garbage.clear();
            self.skipped = 0;
        }
    }

    /// The next frame. `None` if the deadline passes.
    fn frame(&mut self, deadline: Option<Instant>) -> Result<Option<Frame>, Error> {
        let mut buffer = [0; 16384];
        loop {
            if let Some(frame) = self.framer.next_frame() {
                self.any_frame |= !matches!(frame, Frame::Garbage(_));
                return Ok(Some(frame));
            }
            match self.stream.read(&mut buffer, deadline) {
                Ok(None) => return Ok(None),
                Ok(Some(0)) => return Err(self.closed()),
                Ok(Some(count)) => {
                    self.heard = Instant::now();
                    self.framer.feed(buffer.get(..count).unwrap_or_default());
                }
                Err(error) => return Err(self.io(error)),
            }
        }
    }

    /// Writes all bytes. Reads meanwhile, so that the two sides cannot both wait for buffer space.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let deadline = Instant::now() + self.timeout;
        let mut left = bytes;
        let mut ahead = 0;
        while !left.is_empty() {
            // Input that was read ahead is stored, so it is limited too.
            let room = ahead < self.max_packet;
            match self.stream.write(left, deadline, room) {
                Ok(0) if Instant::now() >= deadline => return Err(self.too_late()),
                Ok(0) => {
                    let mut buffer = [0; 16384];
                    match self.stream.read(&mut buffer, Some(deadline)) {
                        Ok(None) => {}
                        Ok(Some(0)) => return Err(self.closed()),
                        Ok(Some(count)) => {
                            ahead += count;
                            self.framer.feed(buffer.get(..count).unwrap_or_default());
                        }
                        Err(error) => return Err(self.io(error)),
                    }
                }
                Ok(count) => left = left.get(count..).unwrap_or_default(),
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(())
    }

    /// Records that an answer did not come in time; it must be ignored if it comes later.
    pub(crate) fn too_late(&mut self) -> Error {
        if !self.any_packet && self.skipped > 0 {
            return self.not_rsp();
        }
        let (packet, timeout) = (self.request.clone(), self.timeout);
        self.fail(match self.any_frame {
            true => Error::Timeout { packet, timeout },
            false => Error::Silent { timeout },
        })
    }

    fn closed(&mut self) -> Error {
        if let Some(log) = &mut self.log {
            log.closed();
        }
        if !self.any_packet && self.skipped > 0 {
            return self.not_rsp();
        }
        let during = match (self.framer.in_packet(), self.request.as_str()) {
            (true, _) => "in the middle of a packet".to_owned(),
            (false, "") => "before the first request".to_owned(),
            (false, request) => format!("without an answer to `{request}`"),
        };
        self.fail(Error::Closed { during })
    }

    fn io(&mut self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted => self.closed(),
            _ => self.fail(Error::Io(error)),
        }
    }

    fn not_rsp(&mut self) -> Error {
        let seen = format!("`{}`", shown(&self.garbage));
        self.fail(Error::NotRsp { seen })
    }

    /// Marks the connection broken.
    fn fail(&mut self, error: Error) -> Error {
        let text = error.to_string();
        self.note(&text);
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.broken = Some(text);
        error
    }

    fn note(&mut self, text: &str) {
        if let Some(log) = &mut self.log {
            log.note(text);
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether a payload is console output: `O` and pairs of hexadecimal digits (RSP, "Stop Reply
/// Packets"). `OK` is not console output, because K is not a digit.
pub(crate) fn is_console(payload: &[u8]) -> bool {
    match payload.split_first() {
        Some((b'O', digits)) => digits.len() % 2 == 0 && digits.iter().all(u8::is_ascii_hexdigit),
        _ => false,
    }
}

/// The start of a payload, for messages.
pub(crate) fn shown(payload: &[u8]) -> String {
    const SHOWN: usize = 60;
    match payload.get(..SHOWN) {
        Some(start) if payload.len() > SHOWN => format!("{}...", start.escape_ascii()),
        _ => payload.escape_ascii().to_string(),
    }
}
