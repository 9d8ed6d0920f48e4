//! `?`: why the program is halted. Also how a client learns that there is none (`W00`).

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracee::{Cause, Stop};

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    if debuggee.free {
        // It has been let go, and only observers see it.
        return Answer::Reply(b"W00".to_vec());
    }
    if debuggee.non_stop {
        held_threads(session, debuggee)
    } else {
        last(session, debuggee)
    }
}

/// The last stop of all.
pub(super) fn last(session: &mut Session, debuggee: &mut Debuggee) -> Answer {
    let stop = debuggee.halt_reason();
    match (stop, &mut debuggee.family.current) {
        (Some(stop), Some(process)) => {
            if let Stop::Thread(tid, _) = stop {
                session.selected = Some(tid);
            }
            Answer::Reply(session.dialect.stop_reply(process, &stop))
        }
        _ => Answer::Reply(b"W00".to_vec()),
    }
}

/// In non-stop mode: the first of the threads that are held; `vStopped` asks for the others. `OK`: all run, or there are none.
fn held_threads(session: &mut Session, debuggee: &mut Debuggee) -> Answer {
    let last = debuggee.halt_reason();
    session.stop_notifications.clear();
    for process in debuggee.family.members() {
        for tid in process.held_threads() {
            let stop = match &last {
                Some(stop @ Stop::Thread(stopped, _)) if *stopped == tid => stop.clone(),
                _ => Stop::Thread(tid, Cause::Halted),
            };
            let reply = session.dialect.stop_reply(process, &stop);
            // Not a notification: the first is the reply to this packet.
            session.stop_notifications.push(&stop, reply);
        }
    }
    session
        .stop_notifications
        .first()
        .map_or_else(Answer::ok, Answer::Reply)
}
