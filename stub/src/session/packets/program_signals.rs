//! `QProgramSignals`: which of the signals that the client has seen go to the program on detaching.

use super::Answer;
use super::pass_signals::signals;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let set = signals(rest);
    debuggee.set_stop_policy(|stop_policy| stop_policy.deliver = Some(set));
    Answer::ok()
}
