//! `D`: let the program go. The reply says that it is done, not that it will be.

use nix::errno::Errno;

use super::Answer;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::{Outcome, Session};
use crate::sys::Tid;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let asked = match rest.strip_prefix(b";") {
        Some(digits) => Some(number(digits)),
        None if rest.is_empty() => None,
        None => return Answer::error(Errno::EINVAL),
    };
    match asked {
        _ if debuggee.free => return Answer::error(Errno::ESRCH),
        None if debuggee.pid().is_some() => debuggee.let_go(),
        Some(Some(pid)) if debuggee.let_one_go(Tid(pid as i32)) => {}
        _ => return Answer::error(Errno::ESRCH),
    }
    session.selected = None;
    if session.extended {
        // This client will say what comes next.
        debuggee.forget_untraced();
    }
    if debuggee.pid().is_none() || debuggee.free {
        session.outcome = Some(Outcome::Detached);
    }
    Answer::ok()
}
