//! `vRun` and `vAttach`: the stop reply is ours. gdbstub reads `vAttach`; of `vRun` it would drop empty arguments.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use nix::errno::Errno;

use super::{Answer, halt_reason};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::unhex;
use crate::tracee::Action;

/// `;file;argument;...` in hexadecimal; no file: the same program as before.
pub(super) fn run(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let words: Option<Vec<OsString>> = rest
        .split(|byte| *byte == b';')
        .map(|word| unhex(word).map(OsString::from_vec))
        .collect();
    let Some(mut words) = words else {
        return Answer::error(Errno::EINVAL);
    };
    if words.first().is_none_or(|file| file.is_empty()) {
        let Some(file) = debuggee.program.words.first() else {
            return Answer::error(Errno::ENOENT);
        };
        words = [vec![file.clone()], words.split_off(words.len().min(1))].concat();
    }
    debuggee.program.words = words;
    if !session.dialect.multiprocess {
        debuggee.kill();
    }
    match debuggee.start() {
        Ok(()) => {
            session.selected = None;
            halt_reason::last(session, debuggee)
        }
        Err(failure) => {
            crate::say!("{}: {failure}", crate::NAME);
            let errno = failure.errno();
            debuggee.failure = Some(failure);
            Answer::error(errno)
        }
    }
}

pub(super) fn attach(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    debuggee.failure = None;
    if debuggee.live().is_some() && !session.dialect.multiprocess {
        return Answer::error(Errno::EBUSY);
    }
    let packet = [b"vAttach;", rest].concat();
    let replies = session.pass_on(debuggee, &packet);
    if let Some(failure) = &debuggee.failure {
        crate::say!("{}: {failure}", crate::NAME);
    }
    if debuggee.non_stop
        && debuggee.failure.is_none()
        && let Some(process) = debuggee.live()
    {
        // Not stopped, as gdbserver has it: gdb can read a stop only when it knows the registers, and asks for it then.
        let go = Action::Continue(0);
        process.resume_some(|_| Some(go), Some(go));
        return Answer::ok();
    }
    match replies.into_iter().next_back() {
        Some(reply) if reply.starts_with(b"T") => {
            session.selected = None;
            halt_reason::last(session, debuggee)
        }
        Some(reply) => Answer::Reply(reply),
        None => Answer::Reply(Vec::new()),
    }
}
