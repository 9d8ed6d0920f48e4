//! `QStartNoAckMode`: framing is ours, so this is too.

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    session.framing.stop_acks();
    Answer::ok()
}
