//! `QUnspoolTrace`: frames are taken out of the trace buffer and sent as they come (docs/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracee::Seat;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let seat = session.seat();
    let (drained, waits) = match rest {
        b"0" => (false, false),
        b"1" => (true, false),
        // Who only observes costs the program nothing.
        b"2" if seat == Seat::Control => (true, true),
        _ => return Answer::error(Errno::EINVAL),
    };
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let trace = process.trace(seat);
    (trace.drained, trace.waits) = (drained, waits);
    Answer::ok()
}
