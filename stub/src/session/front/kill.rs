//! `k` and `vKill`: end the program.

use nix::errno::Errno;

use super::Answer;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::{Outcome, Session};

pub(super) fn without_reply(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    if !rest.is_empty() {
        return Answer::Reply(Vec::new());
    }
    debuggee.kill();
    session.outcome = Some(Outcome::Killed);
    Answer::Nothing
}

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let known = debuggee.process.as_ref().map(|p| p.pid().0 as u64);
    if known.is_none() || number(rest) != known {
        return Answer::error(Errno::ESRCH);
    }
    debuggee.kill();
    session.outcome = Some(Outcome::Killed);
    Answer::ok()
}
