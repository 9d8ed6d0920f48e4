//! `QUnspoolTrace`: frames are taken out of the trace buffer and sent as they come (docs/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let seat = session.seat();
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(Errno::EINVAL),
    };
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    process.trace(seat).drained = on;
    Answer::ok()
}
