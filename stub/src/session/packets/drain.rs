//! `QUnspoolTrace`: frames are taken out of the trace buffer and sent as they come (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracee::Role;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let role = session.role();
    let (drained, waits) = match rest {
        b"0" => (false, false),
        b"1" => (true, false),
        b"2" => (true, true),
        _ => return Answer::error(Errno::EINVAL),
    };
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    if waits && role != Role::Control && process.budget.share.is_some() {
        // An observer may cost the program no more than the budget.
        return Answer::error(Errno::EPERM);
    }
    let trace = process.trace(role);
    (trace.drained, trace.waits) = (drained, waits);
    Answer::ok()
}
