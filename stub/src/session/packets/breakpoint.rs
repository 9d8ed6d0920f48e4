//! Breakpoint packets: `Z0` to `Z4` and `z0` to `z4`.

use nix::errno::Errno;

use crate::arch::watch::{Access, MAX_WATCHED_BYTES, Watch};
use crate::breakpoint::condition::HitActions;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{number, unhex};

use super::{Answer, planted, range};

/// `Z0`: a software breakpoint, with conditions and commands that the stub evaluates.
///
/// `addr,kind[;Xlen,bytes...][;cmds:persist,Xlen,bytes...]`. The lists replace those of an earlier
/// packet.
pub(super) fn insert_software(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(((at, kind), actions)) = breakpoint(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    planted(tracee.plant(at, kind, actions))
}

/// `z0`: removes a software breakpoint.
///
/// `addr,kind`.
pub(super) fn remove_software(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(((at, _), _)) = breakpoint(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    match debuggee.live().map(|tracee| tracee.unplant(at)) {
        Some(Err(errno)) => Answer::error(errno),
        _ => Answer::ok(),
    }
}

/// Address, kind, and the actions at a hit.
type Breakpoint = ((u64, usize), HitActions);

fn breakpoint(text: &[u8]) -> Option<Breakpoint> {
    let mut parts = text.split(|byte| *byte == b';');
    let place = range(parts.next()?)?;
    let mut actions = HitActions::default();
    for part in parts {
        if let Some(rest) = part.strip_prefix(b"cmds:") {
            let comma = rest.iter().position(|byte| *byte == b',')?;
            actions.persist = number(&rest[..comma])? != 0;
            actions.commands.extend(expressions(&rest[comma + 1..])?);
        } else {
            actions.conditions.extend(expressions(part)?);
        }
    }
    Some((place, actions))
}

/// Parses `Xlen,bytes...`. gdb puts no separator between expressions.
fn expressions(mut rest: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let after = rest.strip_prefix(b"X")?;
        let comma = after.iter().position(|byte| *byte == b',')?;
        let digits = usize::try_from(number(&after[..comma])?)
            .ok()?
            .checked_mul(2)?;
        let (code, after) = after[comma + 1..].split_at_checked(digits)?;
        all.push(unhex(code)?);
        rest = after;
    }
    Some(all)
}

/// `Z1`: a breakpoint in a debug register. If the machine cannot do it at all, the reply is that of
/// an unknown packet, so that gdb tries another kind.
pub(super) fn insert_hardware(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert_watch(debuggee, Access::Execute, rest)
}

pub(super) fn insert_write(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert_watch(debuggee, Access::Write, rest)
}

pub(super) fn insert_read(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert_watch(debuggee, Access::Read, rest)
}

pub(super) fn insert_access(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    insert_watch(debuggee, Access::Any, rest)
}

pub(super) fn remove_hardware(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove_watch(debuggee, Access::Execute, rest)
}

pub(super) fn remove_write(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove_watch(debuggee, Access::Write, rest)
}

pub(super) fn remove_read(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove_watch(debuggee, Access::Read, rest)
}

pub(super) fn remove_access(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    remove_watch(debuggee, Access::Any, rest)
}

fn insert_watch(debuggee: &mut Debuggee, access: Access, rest: &[u8]) -> Answer {
    let (Some(watch), Some(tracee)) = (watch(access, rest), debuggee.live()) else {
        return Answer::error(Errno::EINVAL);
    };
    if watch.length > MAX_WATCHED_BYTES {
        return Answer::error(Errno::ENOSPC);
    }
    match tracee.watch(watch) {
        Ok(true) => Answer::ok(),
        Ok(false) if access == Access::Read => Answer::Reply(Vec::new()),
        Ok(false) => Answer::error(Errno::ENOSPC),
        Err(errno) => Answer::error(errno),
    }
}

fn remove_watch(debuggee: &mut Debuggee, access: Access, rest: &[u8]) -> Answer {
    let Some(watch) = watch(access, rest) else {
        return Answer::error(Errno::EINVAL);
    };
    match debuggee.live().map(|tracee| tracee.unwatch(watch)) {
        Some(Err(errno)) => Answer::error(errno),
        _ => Answer::ok(),
    }
}

/// Parses `addr,kind`. The kind is a breakpoint's kind, or the number of bytes to watch.
fn watch(access: Access, rest: &[u8]) -> Option<Watch> {
    let plain = rest.split(|byte| *byte == b';').next()?;
    let (at, length) = range(plain)?;
    // The watched range is rounded up to whole words.
    at.checked_add(length as u64)?.checked_add(8)?;
    Some(Watch {
        access,
        at,
        length: length as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_expressions() {
        let read = |text: &str| breakpoint(text.as_bytes());
        assert_eq!(
            read("401000,1"),
            Some(((0x40_1000, 1), HitActions::default()))
        );
        let both = vec![vec![0x22, 1, 0x27], vec![0x27]];
        let actions = HitActions {
            conditions: both.clone(),
            ..HitActions::default()
        };
        assert_eq!(
            read("10,4;X3,220127X1,27"),
            Some(((16, 4), actions.clone()))
        );
        assert_eq!(
            read("10,4;X3,220127;X1,27"),
            Some(((16, 4), actions.clone()))
        );
        let actions = HitActions {
            commands: both,
            ..actions
        };
        let lists = "10,4;X3,220127X1,27;cmds:0,X3,220127X1,27";
        assert_eq!(read(lists), Some(((16, 4), actions)));
        assert!(read("10,4;cmds:1,X1,27").is_some_and(|(_, actions)| actions.persist));
        for nonsense in [
            "10",
            "10,4;X4,220127",
            "10,4;X3,2201zz",
            "10,4;cmds:0",
            "10,4;cmds:,X1,27",
            "10,4;cmds:0,X2,27",
            "x,1",
            "10,4;X1",
        ] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
