//! `vRun` and `vAttach`: gdbstub reads them and the debuggee does them; the stop reply is ours.

use super::{Answer, halt_reason};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, packet: &[u8]) -> Answer {
    debuggee.failure = None;
    let replies = session.pass_on(debuggee, packet);
    if let Some(failure) = &debuggee.failure {
        crate::say!("{}: {failure}", crate::NAME);
    }
    match replies.into_iter().next_back() {
        Some(reply) if reply.starts_with(b"T") => {
            session.selected = None;
            halt_reason::answer(session, debuggee, &[])
        }
        Some(reply) => Answer::Reply(reply),
        None => Answer::Reply(Vec::new()),
    }
}
