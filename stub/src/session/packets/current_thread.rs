//! `qC`: the selected thread.

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee) -> Answer {
    match (session.thread(debuggee), debuggee.pid()) {
        (Some(tid), Some(pid)) => {
            Answer::Reply(format!("QC{}", session.dialect.thread_id(pid, tid)).into_bytes())
        }
        _ => Answer::error(Errno::ESRCH),
    }
}
