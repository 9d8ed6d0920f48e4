//! Replays a transcript: a server that answers like the recorded one.
//!
//! The engine does no I/O: bytes in, bytes out. The client must send the recorded packets in the
//! same order; their times do not matter.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use crate::packet::{self, Frame, Framer};
use crate::transcript::{Event, Transcript, line};

/// A recorded session that is being replayed.
#[derive(Debug)]
pub struct Replay {
    transcript: Transcript,
    at: usize,
    framer: Framer,
    acks: bool,
    /// The client's last packet, to detect the end of acknowledgements.
    last: Vec<u8>,
    /// The last packet sent, with its frame, in case it must be sent again.
    sent: Vec<u8>,
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// Number of recorded packets and interrupts that the client did not send.
    pub left: usize,
}

/// A difference between the client's input and the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The transcript's line, from 1; one past the last line if the transcript had ended.
    pub line: usize,
    /// The recorded input.
    pub expected: String,
    /// The client's input.
    pub got: String,
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the client departs from the transcript at line {}; record the transcript again if \
             the change is intended\n- {}\n+ {}",
            self.line, self.expected, self.got
        )
    }
}

impl std::error::Error for Departure {}

impl Replay {
    /// A replay at the start of its session.
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

    /// Processes the client's bytes and returns the reply.
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
                // A real server ignores an interrupt while its target is stopped. The client may
                // have sent it slightly later than in the recording.
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

    /// Whether the server closes the connection now, according to the transcript.
    pub fn is_closed(&self) -> bool {
        self.next() == Some(&Event::Closed)
    }

    /// The rest of the client's input.
    pub fn replayed(&self) -> Replayed {
        let rest = self.transcript.entries.get(self.at..).unwrap_or_default();
        Replayed {
            left: rest
                .iter()
                .filter(|e| matches!(e.event, Event::Sent(_) | Event::Interrupt))
                .count(),
        }
    }

    /// Serves one client until the client or the transcript closes the connection.
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

    /// Serves on a new thread. Returns the client's end of the connection.
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

    /// Sends everything that the server sent before the client's next packet.
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

/// The event as a transcript line.
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
