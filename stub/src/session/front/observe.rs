//! What an observer may ask, and what only observers ask: `QUnspoolGo`, `QUnspoolRelease` (docs/protocol.md, "Several
//! clients").

use nix::errno::Errno;

use super::Answer;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::{Outcome, Session};
use crate::sys::Tid;
use crate::tracee::{Cause, Seat, Stop};

/// Packets that change neither the program nor what its controller sees. All others are refused.
const ALLOWED: &[&str] = &[
    "H",
    "T",
    "QStartNoAckMode",
    "QTBuffer:",
    "QTD",
    "QTEnable:",
    "QTFrame:",
    "QTNotes:",
    "QTS",
    "QTinit",
    "QTro:",
    "QUnspool",
    "g",
    "m",
    "p",
    "qAttached",
    "qC",
    "qGetTLSAddr:",
    "qSearch:",
    "qSupported",
    "qSymbol",
    "qT",
    "qUnspool",
    "qXfer:auxv:read:",
    "qXfer:exec-file:read:",
    "qXfer:features:read:",
    "qXfer:libraries-svr4:read:",
    "qXfer:osdata:read:",
    "qXfer:siginfo:read:",
    "qXfer:threads:read:",
    "qXfer:traceframe-info:read:",
    "qfThreadInfo",
    "qsThreadInfo",
    "vFile:",
    "vMustReplyEmpty",
    "x",
];

/// Packets that gdb and others send to change something, or to have the program run.
const CONTROLS: &[&str] = &[
    "!",
    "C",
    "G",
    "M",
    "P",
    "QCatchSyscalls",
    "QDisableRandomization",
    "QEnvironment",
    "QNonStop",
    "QPassSignals",
    "QProgramSignals",
    "QSetWorkingDir",
    "QStartupWithShell",
    "QThreadEvents",
    "R",
    "S",
    "X",
    "Z",
    "c",
    "k",
    "qRcmd",
    "qXfer:siginfo:write:",
    "s",
    "vAttach",
    "vCont",
    "vCtrlC",
    "vKill",
    "vRun",
    "z",
];

/// An observer's packet that is not answered as anybody's; `None`: it is.
pub(super) fn answer(
    session: &mut Session,
    debuggee: &mut Debuggee,
    packet: &[u8],
) -> Option<Answer> {
    let begins = |list: &[&str]| {
        list.iter()
            .any(|start| packet.starts_with(start.as_bytes()))
    };
    if packet == b"?" {
        return Some(glance(session, debuggee));
    }
    if packet == b"D" || packet.starts_with(b"D;") {
        session.outcome = Some(Outcome::Detached);
        return Some(Answer::ok());
    }
    if begins(ALLOWED) {
        return None;
    }
    if begins(CONTROLS) {
        let words = "E.an observer cannot do this: only the client that controls the program can";
        return Some(Answer::Reply(words.as_bytes().to_vec()));
    }
    Some(Answer::Reply(Vec::new()))
}

/// `?`: which process that is. Nothing has stopped for it.
fn glance(session: &Session, debuggee: &mut Debuggee) -> Answer {
    let Some(process) = debuggee.live() else {
        return Answer::Reply(b"W00".to_vec());
    };
    let stop = Stop::Thread(process.current(), Cause::Halted);
    Answer::Reply(session.dialect.stop_reply(process, &stop))
}

/// `QUnspoolGo`: the program may run, as far as this client is concerned. Nobody else being in control, it does.
pub(super) fn go(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    if session.controls() {
        return Answer::error(Errno::EBUSY);
    }
    if let Some(name) = &debuggee.controller
        && !debuggee.free
    {
        return Answer::Reply(format!("E.{name} controls the program").into_bytes());
    }
    if debuggee.live().is_none() {
        return Answer::error(Errno::ESRCH);
    }
    debuggee.go_free();
    Answer::ok()
}

/// `QUnspoolRelease:TID`: a thread that was held goes on.
pub(super) fn release(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let tid = number(rest).and_then(|tid| i32::try_from(tid).ok());
    let (Some(tid), Some(process)) = (tid, debuggee.live()) else {
        return Answer::error(Errno::EINVAL);
    };
    match session.seat() {
        seat @ Seat::Observer(_) if process.release(Tid(tid), seat) => Answer::ok(),
        _ => Answer::error(Errno::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, CONTROLS};

    #[test]
    fn nothing_is_both() {
        for allowed in ALLOWED {
            for control in CONTROLS {
                let clash = allowed.starts_with(control) || control.starts_with(allowed);
                assert!(!clash, "{allowed} and {control}");
            }
        }
    }
}
