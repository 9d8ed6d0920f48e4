//! Packets that an observer may send, and those that only observers send: `QUnspoolGo`,
//! `QUnspoolRelease`, `QUnspoolSignal` (docs/reference/protocol.md, "Several clients").

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Answer, process};
use crate::ptrace::stop::{Cause, Stop};
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::{Outcome, Session};
use crate::subscription::role::Role;
use crate::sys::Tid;

/// Packets that change neither the program nor anything its controlling client sees. All others are
/// refused.
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

/// Packets that change the program or its state. gdb and other clients expect an error for them.
const CONTROLS: &[&str] = &[
    "!",
    "C",
    "G",
    "M",
    "P",
    "QCatchSyscalls",
    "QNonStop",
    "QPassSignals",
    "QProgramSignals",
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
    "vCont",
    "vCtrlC",
    "vKill",
    "z",
];

/// Packets that start or attach to a program. An observer may send them while no client is in
/// control and there is no program.
const START_PACKETS: &[&str] = &[
    "QDisableRandomization",
    "QEnvironment",
    "QSetWorkingDir",
    "QStartupWithShell",
    "vAttach;",
    "vRun;",
];

/// The answer to an observer's packet. `None` if it has the usual answer.
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
        return Some(name_process(session, debuggee));
    }
    if packet == b"D" || packet.starts_with(b"D;") {
        session.outcome = Some(Outcome::Detached);
        return Some(Answer::ok());
    }
    if begins(ALLOWED) {
        return None;
    }
    if begins(START_PACKETS) {
        return Some(start(session, debuggee, packet));
    }
    if begins(CONTROLS) {
        let words = "E.an observer cannot do this: only the client that controls the program can";
        return Some(Answer::Reply(words.as_bytes().to_vec()));
    }
    Some(Answer::Reply(Vec::new()))
}

/// `?`: names the process without a stop.
fn name_process(session: &Session, debuggee: &mut Debuggee) -> Answer {
    let Some(tracee) = debuggee.live() else {
        return Answer::Reply(b"W00".to_vec());
    };
    let stop = Stop::Thread(tracee.process.current(), Cause::Halted);
    Answer::Reply(session.dialect.stop_reply(tracee, &stop))
}

/// Starts or attaches to a program, or sets start options.
fn start(session: &mut Session, debuggee: &mut Debuggee, packet: &[u8]) -> Answer {
    let error = |words: String| Answer::Reply(format!("E.{words}").into_bytes());
    let asked = packet.strip_prefix(b"vAttach;").and_then(number);
    if let Some(pid) = debuggee.live().map(|tracee| tracee.process.pid()) {
        if asked == u64::try_from(pid.0).ok() {
            return name_process(session, debuggee);
        }
        return error(format!(
            "this stub serves process {pid}; name that process, or start another stub"
        ));
    }
    if let Some(name) = &debuggee.controller {
        return error(format!(
            "{name} controls this stub, so only that client can start a program or attach to one"
        ));
    }
    debuggee.failure = None;
    let answer = match packet {
        [b'v', b'R', b'u', b'n', b';', rest @ ..] => process::run(session, debuggee, rest),
        [b'v', b'A', b't', b't', b'a', b'c', b'h', b';', rest @ ..] => {
            process::attach(session, debuggee, rest)
        }
        _ => return Answer::PassOn,
    };
    if let Some(pid) = debuggee.pid() {
        session.observe_process(pid);
        debuggee.brought_by = Some(session.number());
        return answer;
    }
    match debuggee.failure.take() {
        Some(failure) => error(failure.to_string()),
        None => answer,
    }
}

/// `QUnspoolSignal:SIGNAL` (gdb's number): sends a signal to the process that this observer has
/// started.
pub(super) fn signal(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let signal = match number(rest) {
        Some(2) => Signal::SIGINT,
        Some(9) => Signal::SIGKILL,
        Some(15) => Signal::SIGTERM,
        _ => return Answer::error(Errno::EINVAL),
    };
    let started = debuggee.brought_by == Some(session.number());
    let tracee = debuggee
        .live()
        .filter(|tracee| started && !tracee.process.attached);
    let Some(tracee) = tracee else {
        let words = b"E.an observer can end only a program that it has started";
        return Answer::Reply(words.to_vec());
    };
    match kill(Pid::from_raw(tracee.process.pid().0), signal) {
        Ok(()) => Answer::ok(),
        Err(errno) => Answer::error(errno),
    }
}

/// `QUnspoolGo`: lets the program run, unless another client controls it.
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

/// `QUnspoolRelease:TID`: ends the hold of a thread.
pub(super) fn release(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let tid = number(rest).and_then(|tid| i32::try_from(tid).ok());
    let (Some(tid), Some(tracee)) = (tid, debuggee.live()) else {
        return Answer::error(Errno::EINVAL);
    };
    match session.role() {
        role @ Role::Observer(_) if tracee.release(Tid(tid), role) => Answer::ok(),
        _ => Answer::error(Errno::ESRCH),
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, CONTROLS, START_PACKETS};

    #[test]
    fn no_packet_is_in_two_lists() {
        let lists = [ALLOWED, CONTROLS, START_PACKETS];
        for (index, list) in lists.iter().enumerate() {
            let others = lists[index + 1..].concat();
            for (one, other) in list.iter().flat_map(|a| others.iter().map(move |b| (a, b))) {
                let clash = one.starts_with(other) || other.starts_with(one);
                assert!(!clash, "{one} and {other}");
            }
        }
    }
}
