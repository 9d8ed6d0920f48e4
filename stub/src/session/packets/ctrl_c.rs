//! `vCtrlC`: the interrupt byte as a packet.

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    session.framing.send(b"OK");
    session.interrupt(debuggee);
    Answer::Nothing
}
