//! `Z1` to `Z4`: breakpoints and watchpoints in debug registers. What the machine cannot do at all is
//! answered as an unknown packet, so that gdb tries another kind.

use nix::errno::Errno;

use super::{Answer, range};
use crate::arch::watch::{Access, MOST_BYTES, Watch};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn insert_breakpoint(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert(debuggee, Access::Execute, rest)
}

pub(super) fn insert_write(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert(debuggee, Access::Write, rest)
}

pub(super) fn insert_read(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert(debuggee, Access::Read, rest)
}

pub(super) fn insert_access(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert(debuggee, Access::Any, rest)
}

pub(super) fn remove_breakpoint(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove(debuggee, Access::Execute, rest)
}

pub(super) fn remove_write(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove(debuggee, Access::Write, rest)
}

pub(super) fn remove_read(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove(debuggee, Access::Read, rest)
}

pub(super) fn remove_access(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove(debuggee, Access::Any, rest)
}

fn insert(debuggee: &mut Debuggee, access: Access, rest: &[u8]) -> Answer {
    let (Some(watch), Some(process)) = (watch(access, rest), debuggee.live()) else {
        return Answer::error(Errno::EINVAL);
    };
    if watch.length > MOST_BYTES {
        return Answer::error(Errno::ENOSPC);
    }
    match process.watch(watch) {
        Ok(true) => Answer::ok(),
        Ok(false) if access == Access::Read => Answer::Reply(Vec::new()),
        Ok(false) => Answer::error(Errno::ENOSPC),
        Err(errno) => Answer::error(errno),
    }
}

fn remove(debuggee: &mut Debuggee, access: Access, rest: &[u8]) -> Answer {
    let Some(watch) = watch(access, rest) else {
        return Answer::error(Errno::EINVAL);
    };
    match debuggee.live().map(|process| process.unwatch(watch)) {
        Some(Err(errno)) => Answer::error(errno),
        _ => Answer::ok(),
    }
}

/// `addr,kind`: a breakpoint's kind, or how many bytes to watch.
fn watch(access: Access, rest: &[u8]) -> Option<Watch> {
    let plain = rest.split(|byte| *byte == b';').next()?;
    let (at, length) = range(plain)?;
    // What is watched is rounded up to whole words.
    at.checked_add(length as u64)?.checked_add(8)?;
    Some(Watch {
        access,
        at,
        length: length as u64,
    })
}
