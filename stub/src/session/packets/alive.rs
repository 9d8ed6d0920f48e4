//! `T`: whether there is still such a thread.

use nix::errno::Errno;

use super::{Answer, ThreadName, thread_name};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    match thread_name(rest) {
        Some(ThreadName::One(tid)) if debuggee.family.process_of(tid).is_some() => Answer::ok(),
        Some(_) => Answer::error(Errno::ESRCH),
        None => Answer::error(Errno::EINVAL),
    }
}
