//! `QUnspoolThreads`: notifications of threads that begin and end; and in stop replies all general
//! registers, at breakpoints also some of the stack: for a client that follows every thread
//! (docs/reference/protocol.md).

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{PACKET_SIZE, number};

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let (on, stack) = match rest {
        b"0" => (false, Some(0)),
        b"1" => (true, Some(0)),
        [b'1', b',', digits @ ..] => (true, number(digits)),
        _ => (false, None),
    };
    let Some(stack) = stack.and_then(|stack| usize::try_from(stack).ok()) else {
        return Answer::error(nix::errno::Errno::EINVAL);
    };
    session.dialect.general_registers = on;
    session.dialect.stack = stack.min(PACKET_SIZE / 4);
    debuggee.follow_threads(session.role(), on);
    Answer::ok()
}
