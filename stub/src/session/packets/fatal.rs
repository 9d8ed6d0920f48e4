//! `QUnspoolFatal`: the client reads the threads before a signal ends the process (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracee::Role;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(Errno::EINVAL),
    };
    match session.role() {
        Role::Control => debuggee.set_stop_policy(|stop_policy| stop_policy.fatal = on),
        role @ Role::Observer(_) => match debuggee.live() {
            Some(process) => process.subscriptions.of(role).wants_fatal = on,
            None => return Answer::error(Errno::ESRCH),
        },
    }
    Answer::ok()
}
