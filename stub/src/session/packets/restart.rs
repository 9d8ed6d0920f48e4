//! `R`: start the program anew. It has no reply.

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    if session.extended && !debuggee.program.words.is_empty() {
        debuggee.kill();
        debuggee.failure = debuggee.start().err();
    }
    Answer::Nothing
}
