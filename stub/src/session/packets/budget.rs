//! `QUnspoolBudget`: the client says what tracing may cost the program (docs/reference/protocol.md).

use nix::errno::Errno;

use super::{Answer, number};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::tracepoint::budget::{Limit, Share};

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let limit = match rest {
        b"none" => Some(Limit::None),
        points => number(points)
            .and_then(|points| Share::from_basis_points(u32::try_from(points).ok()?))
            .map(Limit::Share),
    };
    let Some(limit) = limit else {
        return Answer::error(Errno::EINVAL);
    };
    if !debuggee.permits(limit) {
        return Answer::error(Errno::EPERM);
    }
    let role = session.role();
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    process.subscriptions.of(role).limit = Some(limit);
    process.agree_on_budget();
    Answer::ok()
}
