//! `?`: why the program is halted. Also how a client learns that there is none (`W00`).

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let stop = debuggee.halt_reason();
    match (stop, &mut debuggee.process) {
        (Some(stop), Some(process)) => {
            if let crate::tracee::Stop::Thread(tid, _) = stop {
                session.selected = Some(tid);
            }
            Answer::Reply(session.dialect.stop_reply(process, &stop))
        }
        _ => Answer::Reply(b"W00".to_vec()),
    }
}
