//! `qXfer:siginfo`: the signal the selected thread stopped with, as the kernel's `siginfo_t`. Written, it is
//! what the program's handler will see.

use nix::errno::Errno;

use super::{Answer, transfer};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{number, unescape};
use crate::sys::ptrace::{self, SIGINFO_SIZE, SignalInfo};

pub(super) fn read(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    match shown(session, debuggee) {
        Ok(info) => transfer(&info.bytes(), rest),
        Err(errno) => Answer::error(errno),
    }
}

/// `offset:data`, binary.
pub(super) fn write(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(colon) = rest.iter().position(|byte| *byte == b':') else {
        return Answer::error(Errno::EINVAL);
    };
    let offset = number(&rest[..colon]).and_then(|offset| usize::try_from(offset).ok());
    let data = unescape(&rest[colon + 1..]);
    let place = offset.and_then(|start| Some(start..start.checked_add(data.len())?));
    let Some(place) = place.filter(|place| place.end <= SIGINFO_SIZE) else {
        return Answer::error(Errno::EINVAL);
    };
    let mut bytes = match shown(session, debuggee) {
        Ok(info) => info.bytes(),
        Err(errno) => return Answer::error(errno),
    };
    bytes[place].copy_from_slice(&data);
    let info = SignalInfo::from_bytes(bytes);
    let tid = session.thread(debuggee);
    let (Some(tid), Some(process)) = (tid, debuggee.live()) else {
        return Answer::error(Errno::ESRCH);
    };
    match process.change_signal(tid, info) {
        Ok(()) => Answer::Reply(format!("{:x}", data.len()).into_bytes()),
        Err(errno) => Answer::error(errno),
    }
}

fn shown(session: &Session, debuggee: &mut Debuggee) -> Result<SignalInfo, Errno> {
    let tid = session.thread(debuggee).ok_or(Errno::ESRCH)?;
    let process = debuggee.live();
    let shown = process.and_then(|process| process.shown_signal(tid));
    shown.map_or_else(|| ptrace::signal_info(tid), Ok)
}
