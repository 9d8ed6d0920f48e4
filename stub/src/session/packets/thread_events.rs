//! `QThreadEvents`: stop when a thread begins (`create`) and when it ends (`w`).

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(nix::errno::Errno::EINVAL),
    };
    debuggee.set_stop_policy(|stop_policy| stop_policy.thread_events = on);
    Answer::ok()
}
