//! `qGetTLSAddr`: where a thread-local variable of a module is, in one thread.

use nix::errno::Errno;

use super::{Answer, ThreadName, thread_name};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;

/// `THREAD,OFFSET,LINK-MAP`.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.splitn(3, |byte| *byte == b',');
    let thread = parts.next().and_then(thread_name);
    let (Some(offset), Some(link_map)) =
        (parts.next().and_then(number), parts.next().and_then(number))
    else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(ThreadName::One(tid)) = thread else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(process) = debuggee.family.members().find(|p| p.listed(tid)) else {
        return Answer::error(Errno::ESRCH);
    };
    let known = session.thread_db.get(&process.pid());
    match known.and_then(|known| known.block(process, tid, link_map)) {
        Some(block) => Answer::Reply(format!("{:x}", block.wrapping_add(offset)).into_bytes()),
        None => Answer::error(Errno::ENXIO),
    }
}
