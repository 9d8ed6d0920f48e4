//! `QNonStop` and `vStopped`: threads are stopped one by one, and the client is told by notifications.

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn switch(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(Errno::EINVAL),
    };
    debuggee.non_stop = on;
    session.stop_notifications.clear();
    for process in debuggee.family.members() {
        process.set_non_stop(on);
    }
    Answer::ok()
}

/// `vStopped`: the client has seen the last one.
pub(super) fn next_stop(session: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    session
        .stop_notifications
        .next()
        .map_or_else(Answer::ok, Answer::Reply)
}
