//! Packets as bytes: frames, checksums, run lengths and escapes, without any I/O (RSP, "Overview").
//!
//! ```text
//! $ payload # cs        a packet; cs: two digits, the sum of the payload's bytes as sent, mod 256
//! % payload # cs        a notification
//! + -                   acknowledged; damaged, send again
//! 0x03                  interrupt, client to server, outside packets
//! ```
//!
//! Separate from the connection, so that tests can try any bytes.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;

/// One unit of the byte stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// A packet's payload, with run lengths expanded and escapes as received.
    Packet(Vec<u8>),
    /// A notification's payload (`%`), in the same form.
    Notification(Vec<u8>),
    /// `+`
    Ack,
    /// `-`
    Nack,
    /// The byte 0x03.
    Interrupt,
    /// A packet with a wrong checksum.
    Damaged {
        /// The checksum in the packet; invalid digits count as 0.
        stated: u8,
        /// The checksum of the received bytes.
        computed: u8,
    },
    /// A packet with a correct checksum but invalid run lengths.
    Undecodable {
        /// The problem.
        problem: &'static str,
        /// The start of the payload as sent.
        start: Vec<u8>,
    },
    /// A packet longer than the limit; the rest of it is skipped.
    Oversized,
    /// A meaningless byte outside packets.
    Garbage(u8),
}

/// Divides a byte stream into [`Frame`]s.
#[derive(Debug)]
pub struct Framer {
    limit: usize,
    state: State,
    body: Vec<u8>,
    notification: bool,
    frames: VecDeque<Frame>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    Body,
    Skip,
    FirstDigit,
    SecondDigit(u8),
}

impl Framer {
    /// A framer for packets of up to `limit` bytes, as sent and as expanded.
    pub fn new(limit: usize) -> Framer {
        Framer {
            limit,
            state: State::Between,
            body: Vec::new(),
            notification: false,
            frames: VecDeque::new(),
        }
    }

    /// Adds bytes from the stream.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            // Most bytes of a stream are payload.
            if self.state == State::Body {
                let special = memchr::memchr2(b'#', b'$', bytes).unwrap_or(bytes.len());
                let plain = special.min(self.limit - self.body.len());
                if plain > 0 {
                    self.body.extend_from_slice(&bytes[..plain]);
                    bytes = &bytes[plain..];
                    continue;
                }
            }
            let frame = self.step(*byte);
            self.frames.extend(frame);
            bytes = rest;
        }
    }

    /// The next complete frame.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    /// Whether a complete frame is waiting.
    pub fn has_frame(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Whether a packet has started and not ended.
    pub fn in_packet(&self) -> bool {
        self.state != State::Between
    }

    fn step(&mut self, byte: u8) -> Option<Frame> {
        match (self.state, byte) {
            (State::Between, b'+') => Some(Frame::Ack),
            (State::Between, b'-') => Some(Frame::Nack),
            (State::Between, 0x03) => Some(Frame::Interrupt),
            // `$` is escaped in a payload, so here it starts a new packet: the old one lost its
            // end. This is not reported, because the waiting client retries or times out.
            (State::Between | State::Body | State::Skip, b'$') => self.begin(false),
            (State::Between, b'%') => self.begin(true),
            (State::Between, byte) => Some(Frame::Garbage(byte)),
            (State::Body, b'#') => self.go(State::FirstDigit),
            (State::Body, byte) => {
                if self.body.len() == self.limit {
                    self.body.clear();
                    self.state = State::Skip;
                    return Some(Frame::Oversized);
                }
                self.body.push(byte);
                None
            }
            (State::Skip, b'#') => self.go(State::Between),
            (State::Skip, _) => None,
            (State::FirstDigit, digit) => self.go(State::SecondDigit(digit)),
            (State::SecondDigit(first), second) => {
                self.state = State::Between;
                Some(self.finish([first, second]))
            }
        }
    }

    fn begin(&mut self, notification: bool) -> Option<Frame> {
        self.body.clear();
        self.notification = notification;
        self.go(State::Body)
    }

    fn go(&mut self, state: State) -> Option<Frame> {
        self.state = state;
        None
    }

    fn finish(&mut self, digits: [u8; 2]) -> Frame {
        let body = std::mem::take(&mut self.body);
        let computed = checksum(&body);
        match crate::hex::decode(&digits).as_deref() {
            Some([stated]) if *stated == computed => {}
            stated => {
                return Frame::Damaged {
                    stated: stated.and_then(|s| s.first().copied()).unwrap_or(0),
                    computed,
                };
            }
        }
        match expand(&body, self.limit) {
            Ok(payload) if self.notification => Frame::Notification(payload),
            Ok(payload) => Frame::Packet(payload),
            Err(Expansion::TooLong) => Frame::Oversized,
            Err(Expansion::Wrong(problem)) => Frame::Undecodable {
                problem,
                start: body.get(..80).unwrap_or(&body).to_vec(),
            },
        }
    }
}

/// A payload in its frame: `$payload#cs`. Special bytes must already be escaped.
pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 4);
    bytes.push(b'$');
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(format!("#{:02x}", checksum(payload)).as_bytes());
    bytes
}

/// The sum of the bytes, modulo 256.
pub fn checksum(payload: &[u8]) -> u8 {
    payload.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Escapes binary data: `# $ } *` become `}` and the byte with bit 5 flipped (RSP, "Overview"). `*`
/// must be escaped only in replies, but may be in requests.
pub fn escape(data: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(data.len());
    for byte in data {
        match byte {
            b'#' | b'$' | b'}' | b'*' => escaped.extend_from_slice(&[b'}', byte ^ 0x20]),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

/// Reverses [`escape`]. `None` if the last byte is a lone `}`.
pub fn unescape(payload: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(payload.len());
    let mut rest = payload;
    while let Some(at) = memchr::memchr(b'}', rest) {
        data.extend_from_slice(&rest[..at]);
        data.push(rest.get(at + 1)? ^ 0x20);
        rest = &rest[at + 2..];
    }
    data.extend_from_slice(rest);
    Some(data)
}

enum Expansion {
    TooLong,
    Wrong(&'static str),
}

/// Expands run lengths: `X*n` is X followed by n - 29 more X; n is a printable character (RSP,
/// "Overview", "Response data can be run-length encoded").
fn expand(body: &[u8], limit: usize) -> Result<Vec<u8>, Expansion> {
    let mut payload = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = memchr::memchr(b'*', rest) {
        payload.extend_from_slice(&rest[..at]);
        let last = *payload
            .last()
            .ok_or(Expansion::Wrong("a run length without a byte before it"))?;
        let count = match rest.get(at + 1) {
            Some(n @ b' '..=b'~') => usize::from(*n) - 29,
            _ => return Err(Expansion::Wrong("a run length that is not printable")),
        };
        if payload.len() + count > limit {
            return Err(Expansion::TooLong);
        }
        payload.resize(payload.len() + count, last);
        rest = &rest[at + 2..];
    }
    payload.extend_from_slice(rest);
    Ok(payload)
}
