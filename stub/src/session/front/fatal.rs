//! `QUnspoolFatal`: the client reads the threads before a signal ends the process (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracee::Seat;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(Errno::EINVAL),
    };
    match session.seat() {
        Seat::Control => debuggee.wish(|wishes| wishes.fatal = on),
        seat @ Seat::Observer(_) => match debuggee.live() {
            Some(process) => process.interests.of(seat).wants_fatal = on,
            None => return Answer::error(Errno::ESRCH),
        },
    }
    Answer::ok()
}
