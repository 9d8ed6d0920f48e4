//! `D`: let the program go. The reply says that it is done, not that it will be.

use nix::errno::Errno;

use super::Answer;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::{Outcome, Session};

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let asked = match rest.strip_prefix(b";") {
        Some(digits) => Some(number(digits)),
        None if rest.is_empty() => None,
        None => return Answer::error(Errno::EINVAL),
    };
    match debuggee.pid() {
        Some(pid) if asked.is_none_or(|asked| asked == Some(pid.0 as u64)) => {}
        _ => return Answer::error(Errno::ESRCH),
    }
    debuggee.detach();
    session.outcome = Some(Outcome::Detached);
    Answer::ok()
}
