//! `qTfP`, `qTsP`: uploads existing tracepoints to a client that connects later.

use super::super::Answer;
use super::digits;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracepoint::definition::Tracepoint;

/// `qTfP`: the first piece of the tracepoints.
pub(in super::super) fn first(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let Some(tracee) = debuggee.live() else {
        return Answer::Reply(b"l".to_vec());
    };
    session.upload = tracee
        .trace(session.role())
        .tracepoints
        .values()
        .flat_map(pieces)
        .collect();
    next(session, debuggee, &[])
}

/// `qTsP`, `qTsV`: the next piece of the current upload.
pub(in super::super) fn next(session: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    Answer::Reply(session.upload.pop_front().unwrap_or(b"l".to_vec()))
}

/// A tracepoint's definition, actions and source texts, in the packet's form.
fn pieces(tracepoint: &Tracepoint) -> Vec<Vec<u8>> {
    let (number, address) = (tracepoint.number, tracepoint.address);
    let enabled = if tracepoint.enabled { 'E' } else { 'D' };
    let mut definition = format!(
        "T{number:x}:{address:x}:{enabled}:{:x}:{:x}",
        tracepoint.steps, tracepoint.passes
    );
    if let Some(condition) = &tracepoint.condition {
        definition += &format!(":X{:x},{}", condition.len(), digits(condition));
    }
    let mut pieces = vec![definition.into_bytes()];
    for (letter, text) in &tracepoint.action_texts {
        let start = format!("{letter}{number:x}:{address:x}:");
        pieces.push([start.as_bytes(), text].concat());
    }
    for source in &tracepoint.sources {
        let kind = String::from_utf8_lossy(&source.kind);
        let (length, text) = (source.text.len(), digits(&source.text));
        let piece = format!("Z{number:x}:{address:x}:{kind}:0:{length:x}:{text}");
        pieces.push(piece.into_bytes());
    }
    pieces
}
