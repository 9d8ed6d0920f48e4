//! `QTStart`, `QTStop`, and settings: `QTEnable`, `QTDisable`, `QTDisconnected`, `QTro`,
//! `QTBuffer`, `QTNotes`.

use nix::errno::Errno;

use super::super::{Answer, planted};
use super::{numbers, unhex};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::tracepoint::experiment::Ended;

pub(in super::super) fn start(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let role = session.role();
    session.frame = None;
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    planted(tracee.start_trace(role))
}

pub(in super::super) fn stop(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    tracee.stop_trace(role, Ended::Stopped);
    Answer::ok()
}

pub(in super::super) fn enable(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    switch(session, debuggee, rest, true)
}

pub(in super::super) fn disable(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    switch(session, debuggee, rest, false)
}

/// Enables or disables the tracepoint `n:addr`, even while the trace runs.
fn switch(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8], on: bool) -> Answer {
    let role = session.role();
    let (Some(([number, address], _)), Some(tracee)) = (numbers::<2>(rest, b':'), debuggee.live())
    else {
        return Answer::error(Errno::EINVAL);
    };
    let key = (number as u32, address);
    if !on {
        // Recorded hits need the tracepoint.
        tracee.drain_jump_pads();
    }
    let Some(tracepoint) = tracee.trace(role).tracepoints.get_mut(&key) else {
        return Answer::error(Errno::ENOENT);
    };
    tracepoint.enabled = on;
    let at = tracepoint.at;
    let changed = tracee.tracepoint_changed(role, at);
    if !on && tracee.trace(role).drained {
        tracee.forget_tracepoint(role, key);
    }
    planted(changed)
}

pub(in super::super) fn disconnected(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    if let Some(tracee) = debuggee.live() {
        tracee.trace(role).disconnected = rest == b"1";
    }
    Answer::ok()
}

/// `QTro:start,end:...`: the program's read-only memory.
pub(in super::super) fn read_only(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    if let Some(tracee) = debuggee.live() {
        let pairs = rest.split(|byte| *byte == b':');
        tracee.trace(role).read_only = pairs
            .filter_map(|pair| numbers::<2>(pair, b','))
            .map(|([start, end], _)| start..end)
            .collect();
    }
    Answer::ok()
}

pub(in super::super) fn circular(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    if let Some(tracee) = debuggee.live() {
        tracee.trace(role).buffer.circular = rest == b"1";
    }
    Answer::ok()
}

/// `QTBuffer:size:n`: sets the size of the trace buffer. `-1` restores the default.
pub(in super::super) fn size(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::ok();
    };
    let size = if rest.starts_with(b"-") {
        None
    } else {
        match number(rest) {
            Some(size) => Some(size),
            None => return Answer::error(Errno::EINVAL),
        }
    };
    tracee.trace(role).buffer.resize(size);
    Answer::ok()
}

/// `QTNotes:type:text;...`: stores notes. The texts are hexadecimal digits.
pub(in super::super) fn notes(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::ok();
    };
    for part in rest
        .split(|byte| *byte == b';')
        .filter(|part| !part.is_empty())
    {
        let mut words = part.splitn(2, |byte| *byte == b':');
        let (kind, text) = (words.next(), words.next().and_then(unhex));
        match (kind, text) {
            (Some(b"user"), Some(text)) => tracee.trace(role).user = text,
            (Some(b"notes"), Some(text)) => tracee.trace(role).notes = text,
            (Some(b"tstop"), Some(text)) => tracee.trace(role).stop_note = text,
            _ => return Answer::error(Errno::EINVAL),
        }
    }
    Answer::ok()
}
