//! Register packets: `g` and `p` for trace frames, and `qXfer:siginfo`.

use nix::errno::Errno;

use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{number, unescape};
use crate::sys::ptrace::{self, SIGINFO_SIZE, SignalInfo};

use super::{Answer, trace, transfer};

/// `g` while a trace frame is selected; otherwise gdbstub answers.
pub(super) fn all(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    read_frame(session, debuggee, None)
}

/// `p` while a trace frame is selected; otherwise gdbstub answers.
pub(super) fn one(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    // An invalid number matches no register.
    let wanted = number(rest).and_then(|number| usize::try_from(number).ok());
    read_frame(session, debuggee, Some(wanted.unwrap_or(usize::MAX)))
}

fn read_frame(session: &Session, debuggee: &mut Debuggee, only: Option<usize>) -> Answer {
    let tracee = debuggee.live();
    tracee
        .and_then(|tracee| trace::frame::registers(session, tracee, only))
        .unwrap_or(Answer::PassOn)
}

/// `qXfer:siginfo:read`: the `siginfo_t` of the selected thread's stop.
pub(super) fn read_siginfo(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    match shown_signal(session, debuggee) {
        Ok(info) => transfer(&info.bytes(), rest),
        Err(errno) => Answer::error(errno),
    }
}

/// `qXfer:siginfo:write`: changes the `siginfo_t` that the program's handler will get.
///
/// `offset:data`. The data are binary.
pub(super) fn write_siginfo(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(colon) = rest.iter().position(|byte| *byte == b':') else {
        return Answer::error(Errno::EINVAL);
    };
    let offset = number(&rest[..colon]).and_then(|offset| usize::try_from(offset).ok());
    let data = unescape(&rest[colon + 1..]);
    let place = offset.and_then(|start| Some(start..start.checked_add(data.len())?));
    let Some(place) = place.filter(|place| place.end <= SIGINFO_SIZE) else {
        return Answer::error(Errno::EINVAL);
    };
    let mut bytes = match shown_signal(session, debuggee) {
        Ok(info) => info.bytes(),
        Err(errno) => return Answer::error(errno),
    };
    bytes[place].copy_from_slice(&data);
    let info = SignalInfo::from_bytes(bytes);
    let tid = session.thread(debuggee);
    let (Some(tid), Some(tracee)) = (tid, debuggee.live()) else {
        return Answer::error(Errno::ESRCH);
    };
    match tracee.process.change_signal(tid, info) {
        Ok(()) => Answer::Reply(format!("{:x}", data.len()).into_bytes()),
        Err(errno) => Answer::error(errno),
    }
}

fn shown_signal(session: &Session, debuggee: &mut Debuggee) -> Result<SignalInfo, Errno> {
    let tid = session.thread(debuggee).ok_or(Errno::ESRCH)?;
    let tracee = debuggee.live();
    let shown = tracee.and_then(|tracee| tracee.process.shown_signal(tid));
    shown.map_or_else(|| ptrace::signal_info(tid), Ok)
}
