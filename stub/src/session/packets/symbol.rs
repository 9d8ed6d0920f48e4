//! `qSymbol`: the client offers to look symbols up. Those that say where thread-local data is are asked for.

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{hex, number, unhex};
use crate::session::thread_db::ThreadDb;

/// `:` and nothing: an offer. `VALUE:NAME`: what was asked for, without a value if it is not known.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some((value, name)) = rest.strip_prefix(b":").and_then(|rest| {
        let colon = rest.iter().position(|byte| *byte == b':')?;
        Some((&rest[..colon], unhex(&rest[colon + 1..])?))
    }) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(pid) = debuggee.pid() else {
        return Answer::ok();
    };
    let thread_db = session.thread_db.entry(pid).or_default();
    let wanted = match name.is_empty() {
        true => Some(ThreadDb::first()),
        false => thread_db.answered(&name, number(value)),
    };
    let Some(symbol) = wanted else {
        return Answer::ok();
    };
    let mut reply = b"qSymbol:".to_vec();
    hex(symbol.as_bytes(), &mut reply);
    Answer::Reply(reply)
}
