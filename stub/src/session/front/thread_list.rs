//! `qfThreadInfo`: all thread ids, in one reply. (`qsThreadInfo`, gdbstub's, says that it was the last.)

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let dialect = session.dialect;
    let Some(process) = debuggee.live() else {
        return Answer::Reply(b"l".to_vec());
    };
    let pid = process.pid();
    let ids: Vec<String> = process
        .threads()
        .map(|tid| dialect.thread_id(pid, tid))
        .collect();
    Answer::Reply(format!("m{}", ids.join(",")).into_bytes())
}
