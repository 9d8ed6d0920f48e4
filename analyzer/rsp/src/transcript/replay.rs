//! Serves a transcript: a server that answers as the recorded one did.
//!
//! The engine does no I/O: bytes in, bytes out. What the client sends must equal what the
//! transcript says, in the same order; when it is sent does not matter.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use crate::packet::{self, Frame, Framer};
use crate::transcript::{Event, Transcript, line};

/// A recorded session, being served again.
#[derive(Debug)]
pub struct Replay {
    transcript: Transcript,
    at: usize,
    framer: Framer,
    acks: bool,
    /// The client's last packet, to see when acknowledgements end.
    last: Vec<u8>,
    /// The last packet sent, framed, in case it must be sent again.
    sent: Vec<u8>,
}

/// How a replay ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// How many packets and interrupts of the transcript the client has not sent.
    pub left: usize,
}

/// The client did something else than the transcript says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The transcript's line, from 1; the one after the last if the transcript was over.
    pub line: usize,
    /// What the transcript says comes next.
    pub expected: String,
    /// What the client did.
    pub got: String,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the client departs from the transcript at line {}; record it again if that is meant\n- {}\n+ {}",
            self.line, self.expected, self.got
        )
    }
}

impl std::error::Error for Departure {}

impl Replay {
    /// At the beginning of the session.
    pub fn new(transcript: Transcript) -> Replay {
        Replay {
            transcript,
            at: 0,
            framer: Framer::new(1 << 20),
            acks: true,
            last: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Takes what the client sent and returns what to send back.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Departure> {
        self.framer.feed(bytes);
        let mut out = Vec::new();
        self.speak(&mut out);
        while let Some(frame) = self.framer.next_frame() {
            match frame {
                Frame::Packet(payload) => {
                    if self.acks {
                        out.push(b'+');
                    }
                    self.expect(Event::Sent(payload.clone()))?;
                    self.last = payload;
                }
                // A real server ignores an interrupt while its target stands; the client may
                // have sent it a moment later than when recorded.
                Frame::Interrupt if self.next() != Some(&Event::Interrupt) => {}
                Frame::Interrupt => self.expect(Event::Interrupt)?,
                Frame::Nack => out.extend_from_slice(&self.sent),
                Frame::Ack => {}
                other => {
                    let got = format!("{other:?}");
                    return Err(self.departure(got));
                }
            }
            self.speak(&mut out);
        }
        Ok(out)
    }

    /// Whether the transcript says that the server closes the connection now.
    pub fn is_closed(&self) -> bool {
        self.next() == Some(&Event::Closed)
    }

    /// What the client has still to do.
    pub fn replayed(&self) -> Replayed {
        let rest = self.transcript.entries.get(self.at..).unwrap_or_default();
        Replayed {
            left: rest
                .iter()
                .filter(|e| matches!(e.event, Event::Sent(_) | Event::Interrupt))
                .count(),
        }
    }

    /// Serves one client until it, or the transcript, closes the connection.
    pub fn serve(
        mut self,
        mut stream: impl Read + Write,
    ) -> io::Result<Result<Replayed, Departure>> {
        let mut buffer = [0; 16384];
        let mut count = 0;
        loop {
            match self.feed(buffer.get(..count).unwrap_or_default()) {
                Err(departure) => return Ok(Err(departure)),
                Ok(out) => match stream.write_all(&out) {
                    Err(e) if is_gone(&e) => return Ok(Ok(self.replayed())),
                    result => result?,
                },
            }
            if self.is_closed() {
                return Ok(Ok(self.replayed()));
            }
            count = match stream.read(&mut buffer) {
                Ok(count) => count,
                Err(e) if is_gone(&e) => 0,
                Err(e) => return Err(e),
            };
            if count == 0 {
                return Ok(Ok(self.replayed()));
            }
        }
    }

    /// Serves on a thread of its own; gives the client's end of the connection.
    #[expect(
        clippy::type_complexity,
        reason = "a thread's result, spelled out once"
    )]
    pub fn spawn(
        self,
    ) -> io::Result<(
        UnixStream,
        JoinHandle<io::Result<Result<Replayed, Departure>>>,
    )> {
        let (client, server) = UnixStream::pair()?;
        Ok((client, std::thread::spawn(move || self.serve(server))))
    }

    fn next(&self) -> Option<&Event> {
        Some(&self.transcript.entries.get(self.at)?.event)
    }

    fn expect(&mut self, event: Event) -> Result<(), Departure> {
        if self.next() == Some(&event) {
            self.at += 1;
            return Ok(());
        }
        Err(self.departure(describe(&event)))
    }

    fn departure(&self, got: String) -> Departure {
        let entry = self.transcript.entries.get(self.at);
        let last = self.transcript.entries.last();
        Departure {
            line: entry.map_or(last.map_or(0, |e| e.line) + 1, |e| e.line),
            expected: entry.map_or("(the end of the transcript)".into(), |e| describe(&e.event)),
            got,
        }
    }

    /// Sends all that the server said before the client's next turn.
    fn speak(&mut self, out: &mut Vec<u8>) {
        while let Some(entry) = self.transcript.entries.get(self.at) {
            match &entry.event {
                Event::Received(payload) => {
                    self.sent = packet::frame(payload);
                    if self.last == b"QStartNoAckMode" && payload == b"OK" {
                        self.acks = false;
                    }
                    out.extend_from_slice(&self.sent);
                }
                Event::Notified(payload) => {
                    let mut framed = packet::frame(payload);
                    if let Some(first) = framed.first_mut() {
                        *first = b'%';
                    }
                    out.extend(framed);
                }
                Event::Sent(_) | Event::Interrupt | Event::Closed => break,
            }
            self.at += 1;
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// An event as its line in a transcript.
fn describe(event: &Event) -> String {
    let (verb, payload): (_, &[u8]) = match event {
        Event::Sent(payload) => ("->", payload),
        Event::Received(payload) => ("<-", payload),
        Event::Notified(payload) => ("<~", payload),
        Event::Interrupt => ("interrupt", &[]),
        Event::Closed => ("closed", &[]),
    };
    format!("{verb} {}", line::encode(payload))
        .trim_end()
        .to_owned()
}
