//! `k` and `vKill`: end the program.

use nix::errno::Errno;

use super::Answer;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::{Outcome, Session};
use crate::sys::Tid;

pub(super) fn without_reply(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    if !rest.is_empty() {
        return Answer::Reply(Vec::new());
    }
    debuggee.kill();
    session.outcome = Some(Outcome::Killed);
    Answer::Nothing
}

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let pid = number(rest).and_then(|pid| i32::try_from(pid).ok());
    if debuggee.free || !pid.is_some_and(|pid| debuggee.kill_one(Tid(pid))) {
        return Answer::error(Errno::ESRCH);
    }
    session.selected = None;
    if debuggee.pid().is_none() {
        session.outcome = Some(Outcome::Killed);
    }
    Answer::ok()
}
