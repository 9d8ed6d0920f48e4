//! `Hg` and `Hc`: the thread that register packets, or `c` and `s`, mean.

use nix::errno::Errno;

use super::{Answer, ThreadName, thread_name};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let (Some(operation), Some(name)) = (rest.first(), rest.get(1..).and_then(thread_name)) else {
        return Answer::error(Errno::EINVAL);
    };
    let process = match name {
        ThreadName::One(tid) => debuggee.family.process_of(tid),
        ThreadName::AllOf(pid) | ThreadName::AnyOf(pid) => Some(pid),
        ThreadName::All | ThreadName::Any => debuggee.pid(),
    };
    let named = !matches!(name, ThreadName::All | ThreadName::Any);
    match process {
        None if named => return Answer::error(Errno::ESRCH),
        Some(pid) if *operation == b'g' && !debuggee.family.select(pid) => {
            return Answer::error(Errno::ESRCH);
        }
        _ => {}
    }
    let tid = match name {
        ThreadName::One(tid) => Some(tid),
        _ => None,
    };
    match operation {
        b'c' => session.resumed = tid,
        b'g' if tid.is_some() => session.selected = tid,
        // Any thread will do: the one that stopped is the one that is meant.
        b'g' if debuggee.live().is_some() => {
            session.selected = debuggee.live().map(|process| process.current());
        }
        b'g' => return Answer::error(Errno::ESRCH),
        _ => return Answer::Reply(Vec::new()),
    }
    Answer::ok()
}
