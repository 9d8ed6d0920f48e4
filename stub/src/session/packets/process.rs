//! Process packets: `vRun`, `vAttach`, `R`, `D`, `k`, `vKill` and `qAttached`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use nix::errno::Errno;

use crate::ptrace::action::Action;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{number, unhex};
use crate::session::{Outcome, Session};
use crate::sys::Tid;
use crate::tracee::Tracee;

use super::{Answer, query};

/// `vRun`: starts a program. Not left to gdbstub, which would drop empty arguments and write its
/// own stop reply.
///
/// `;file;argument;...` in hexadecimal. Without a file, starts the previous program.
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
            query::last_stop(session, debuggee)
        }
        Err(failure) => {
            crate::say!("{}: {failure}", crate::NAME);
            let errno = failure.errno();
            debuggee.failure = Some(failure);
            Answer::error(errno)
        }
    }
}

/// `vAttach`: attaches to a process. gdbstub parses the packet; the stop reply is ours.
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
        && let Some(tracee) = debuggee.live()
    {
        // As gdbserver does, leave the process running: gdb can parse a stop reply only after it
        // has read the registers, and requests a stop then.
        let go = Action::Continue(0);
        tracee.resume_some(|_| Some(go), Some(go));
        return Answer::ok();
    }
    match replies.into_iter().next_back() {
        Some(reply) if reply.starts_with(b"T") => {
            session.selected = None;
            query::last_stop(session, debuggee)
        }
        Some(reply) => Answer::Reply(reply),
        None => Answer::Reply(Vec::new()),
    }
}

/// `R`: starts the program again. It has no reply.
pub(super) fn restart(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    if session.extended && !debuggee.program.words.is_empty() {
        debuggee.kill();
        debuggee.failure = debuggee.start().err();
    }
    Answer::Nothing
}

/// `D`: detaches from the program. The reply follows the detach.
pub(super) fn detach(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let asked = match rest.strip_prefix(b";") {
        Some(digits) => Some(number(digits)),
        None if rest.is_empty() => None,
        None => return Answer::error(Errno::EINVAL),
    };
    match asked {
        _ if debuggee.free => return Answer::error(Errno::ESRCH),
        None if debuggee.pid().is_some() => debuggee.detach_client(),
        Some(Some(pid)) if debuggee.detach_client_from(Tid(pid as i32)) => {}
        _ => return Answer::error(Errno::ESRCH),
    }
    session.selected = None;
    if session.extended {
        // A client in extended mode will say what comes next.
        debuggee.forget_untraced();
    }
    if debuggee.pid().is_none() || debuggee.free {
        session.outcome = Some(Outcome::Detached);
    }
    Answer::ok()
}

/// `k`: kills all processes. It has no reply.
pub(super) fn kill_all(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    if !rest.is_empty() {
        return Answer::Reply(Vec::new());
    }
    debuggee.kill();
    session.outcome = Some(Outcome::Killed);
    Answer::Nothing
}

/// `vKill`: kills one process.
pub(super) fn kill_one(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let pid = number(rest).and_then(|pid| i32::try_from(pid).ok());
    if debuggee.free || !pid.is_some_and(|pid| debuggee.kill_one(Tid(pid))) {
        return Answer::error(Errno::ESRCH);
    }
    session.selected = None;
    if debuggee.pid().is_none() {
        session.outcome = Some(Outcome::Killed);
    }
    Answer::ok()
}

/// `qAttached`: whether leaving should mean detaching (1) or killing (0).
///
/// `:PID` if there may be several processes.
pub(super) fn is_attached(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let pid = rest.strip_prefix(b":").and_then(number);
    let meant = |tracee: &&mut Tracee| pid.is_none_or(|pid| tracee.process.pid().0 as u64 == pid);
    let attached = debuggee
        .family
        .members()
        .find(meant)
        .is_some_and(|p| p.process.attached);
    Answer::Reply(if attached { b"1" } else { b"0" }.to_vec())
}
