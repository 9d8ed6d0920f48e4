//! Tracepoint packets (GDB manual, "Tracepoint Packets"), one kind per file, and `QTinit`.
//!
//! gdbstub's tracepoint extension lacks conditions, variables and status details, so all of these
//! packets are answered here (docs/decisions/0002-tracepoints-in-front-of-gdbstub.md).

pub(super) mod buffer;
pub(super) mod define;
pub(super) mod frame;
pub(super) mod run;
pub(super) mod status;
pub(super) mod upload;
pub(super) mod variable;

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{hex, number};
use crate::tracepoint::experiment::Ended;

/// `QTinit`: deletes all tracepoints, variables and frames.
pub(super) fn init(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let role = session.role();
    session.frame = None;
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    tracee.stop_trace(role, Ended::NotRun);
    tracee.trace(role).clear();
    Answer::ok()
}

/// Parses numbers with a separator between them. Returns the text after the last number, too.
fn numbers<const N: usize>(text: &[u8], separator: u8) -> Option<([u64; N], &[u8])> {
    let mut values = [0; N];
    let mut rest = text;
    for (index, value) in values.iter_mut().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(&[separator])?;
        }
        let end = rest.iter().position(|byte| !byte.is_ascii_hexdigit());
        let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
        *value = number(digits)?;
        rest = after;
    }
    Some((values, rest))
}

/// Decodes hexadecimal digits.
fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    digits
        .chunks(2)
        .map(|pair| {
            let pair: &[u8; 2] = pair.try_into().ok()?;
            u8::try_from(number(pair)?).ok()
        })
        .collect()
}

/// Encodes bytes as hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    let mut text = Vec::new();
    hex(bytes, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// An error with a text (GDB manual, "Standard Replies").
fn refused(words: &str) -> Answer {
    Answer::Reply(format!("E.{words}").into_bytes())
}
