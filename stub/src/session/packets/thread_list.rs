//! `qfThreadInfo`: all thread ids, in one reply. (`qsThreadInfo`, gdbstub's, says that it was the last.)

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracee::Tracee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let dialect = session.dialect;
    if debuggee.live().is_none() {
        return Answer::Reply(b"l".to_vec());
    }
    let of = |process: &mut Tracee| {
        let pid = process.pid();
        let ids = process.threads().map(|tid| dialect.thread_id(pid, tid));
        ids.collect::<Vec<String>>()
    };
    let ids: Vec<String> = debuggee.family.known().flat_map(of).collect();
    Answer::Reply(format!("m{}", ids.join(",")).into_bytes())
}
