//! `qTStatus` and `qTP`: status of the trace and of a tracepoint; `qTMinFTPILen`.

use super::super::Answer;
use super::{digits, numbers};
use crate::arch::collector::JUMP;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracepoint::experiment::Ended;

/// Note in gdb's `tstatus` if hits were missed because of the budget.
const MISSED: &[u8] = b"hits are missing because tracepoints were paused to keep to the budget; \
    'monitor budget' shows how many, and '--budget none' sets no limit";

/// `qTStatus`: `T1` if the trace runs, else `T0`, then details (GDB manual, `qTStatus`).
pub(in super::super) fn trace(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::Reply(b"T0;tnotrun:0".to_vec());
    };
    let mut notes = tracee.trace(role).notes.clone();
    if tracee.tracepoints.budget.has_paused() {
        if !notes.is_empty() {
            notes.extend_from_slice(b"; ");
        }
        notes.extend_from_slice(MISSED);
    }
    let trace = tracee.trace(role);
    let reason = match &trace.ended {
        Ended::NotRun => "tnotrun:0".to_owned(),
        Ended::Stopped => format!("tstop:{}:0", digits(&trace.stop_note)),
        Ended::Full => "tfull:0".to_owned(),
        Ended::Disconnected => "tdisconnected:0".to_owned(),
        Ended::Passes(number) => format!("tpasscount:{number:x}"),
        Ended::Error(number, words) => format!("terror:{}:{number:x}", digits(words.as_bytes())),
        Ended::Gone => "tunknown:0".to_owned(),
    };
    let buffer = &trace.buffer;
    Answer::Reply(
        format!(
            "T{};{reason};tframes:{:x};tcreated:{:x};tfree:{:x};tsize:{:x};circular:{};disconn:{};\
             starttime:{:x};stoptime:{:x};username:{};notes:{}:",
            u8::from(trace.running),
            buffer.frames().len(),
            buffer.created,
            buffer.free(),
            buffer.size(),
            u8::from(buffer.circular),
            u8::from(trace.disconnected),
            trace.started_us,
            trace.stopped_us,
            digits(&trace.user),
            digits(&notes),
        )
        .into_bytes(),
    )
}

/// `qTP:n:addr`: number of hits, and of bytes in the buffer.
pub(in super::super) fn tracepoint(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let key = numbers::<2>(rest, b':').map(|([number, address], _)| (number as u32, address));
    let tracepoint = key.and_then(|key| debuggee.live()?.trace(role).tracepoints.get(&key));
    match tracepoint {
        Some(tracepoint) => {
            Answer::Reply(format!("V{:x}:{:x}", tracepoint.hits, tracepoint.usage).into_bytes())
        }
        None => Answer::error(nix::errno::Errno::ENOENT),
    }
}

/// `qUnspoolPlaces`: number of tracepoints with a jump, and the numbers of tracepoints with a trap
/// (docs/reference/protocol.md).
pub(in super::super) fn places(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(nix::errno::Errno::ESRCH);
    };
    tracee.place_pending_jumps();
    let (jumps, traps) = tracee.trace(role).kinds();
    let traps: Vec<String> = traps.iter().map(|number| format!("{number:x}")).collect();
    Answer::Reply(format!("{jumps:x};{}", traps.join(",")).into_bytes())
}

/// `qUnspoolCode`: the memory that the stub has mapped in the program for its own code
/// (docs/reference/protocol.md).
pub(in super::super) fn code(_: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let Some(tracee) = debuggee.live() else {
        return Answer::error(nix::errno::Errno::ESRCH);
    };
    let code = tracee.own_code().into_iter();
    let code: Vec<String> = code
        .map(|(start, size)| format!("{start:x},{size:x}"))
        .collect();
    Answer::Reply(code.join(";").into_bytes())
}

/// `qTMinFTPILen`: minimum length of an instruction for a fast tracepoint, which is the length of
/// the jump.
pub(in super::super) fn shortest_fast(_: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    Answer::Reply(format!("{JUMP:x}").into_bytes())
}
