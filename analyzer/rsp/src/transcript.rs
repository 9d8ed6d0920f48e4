//! Transcripts: whole sessions as readable text, to read, replay, or edit into scripts.
//!
//! docs/reference/rsp-scripts.md describes the format.

pub(crate) mod line;
mod replay;
mod writer;

pub use replay::{Departure, Replay, Replayed};
pub(crate) use writer::Writer;

use std::time::Duration;

/// First line of a transcript of this version.
pub const HEADER: &str = "unspool-rsp transcript 1";

/// A whole session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    /// The events, in order.
    pub entries: Vec<Entry>,
}

/// One event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The line of the event, from 1.
    pub line: usize,
    /// The time since the start of the session.
    pub time: Duration,
    /// The event.
    pub event: Event,
}

/// The kind of event. Payloads are as sent, with run lengths expanded and escapes unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// `->`: the client sent a packet.
    Sent(Vec<u8>),
    /// `<-`: the server sent a packet.
    Received(Vec<u8>),
    /// `<~`: the server sent a notification.
    Notified(Vec<u8>),
    /// `interrupt`: the client sent the byte 0x03.
    Interrupt,
    /// `closed`: the server closed the connection.
    Closed,
}

impl Transcript {
    /// Parses a transcript.
    pub fn parse(text: &str) -> Result<Transcript, TranscriptError> {
        let mut lines = text.lines().enumerate();
        match lines.next() {
            Some((_, first)) if first.trim() == HEADER => {}
            first => {
                return Err(TranscriptError::Header {
                    seen: first.map_or("", |(_, l)| l).chars().take(60).collect(),
                });
            }
        }
        let mut entries = Vec::new();
        for (index, text) in lines {
            let Some(line) = line::split(text) else {
                continue;
            };
            let wrong = |problem| TranscriptError::Line {
                line: index + 1,
                problem,
            };
            let payload = || line::decode_literal(line.text).map_err(wrong);
            let event = match line.verb {
                "->" => Event::Sent(payload()?),
                "<-" => Event::Received(payload()?),
                "<~" => Event::Notified(payload()?),
                "interrupt" => Event::Interrupt,
                "closed" => Event::Closed,
                verb => return Err(wrong(format!("`{verb}`"))),
            };
            entries.push(Entry {
                line: index + 1,
                time: line.time.unwrap_or_default(),
                event,
            });
        }
        Ok(Transcript { entries })
    }
}

/// The reason why a text is not a transcript.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError {
    /// The first line is not the header of this version.
    #[error(
        "expected a transcript that begins with `{HEADER}`, got `{seen}`; record one with --rsp-log, with this version"
    )]
    Header {
        /// The start of the first line.
        seen: String,
    },
    /// A line has a syntax error.
    #[error(
        "line {line} of the transcript: expected `->`, `<-` or `<~` with a packet, or `interrupt`, or `closed` (see docs/reference/rsp-scripts.md), got {problem}"
    )]
    Line {
        /// The line, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
}
