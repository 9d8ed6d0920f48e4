//! `qXfer:siginfo:read`: the signal the selected thread stopped with, as the kernel's `siginfo_t`.

use nix::errno::Errno;

use super::{Answer, transfer};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::sys::ptrace;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(tid) = session.thread(debuggee) else {
        return Answer::error(Errno::ESRCH);
    };
    let shown = debuggee
        .live()
        .and_then(|process| process.shown_signal(tid));
    match shown.map_or_else(|| ptrace::signal_info(tid), Ok) {
        Ok(info) => transfer(&info.bytes(), rest),
        Err(errno) => Answer::error(errno),
    }
}
