//! `qTBuffer`: frames in the format of trace files.

use super::super::{Answer, range};
use super::digits;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::PACKET_SIZE;

pub(in super::super) fn answer(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let (Some((offset, length)), Some(tracee)) = (range(rest), debuggee.live()) else {
        return Answer::error(nix::errno::Errno::EINVAL);
    };
    let length = length.min(PACKET_SIZE / 2 - 8);
    let part = tracee.trace(role).buffer.part(offset, length);
    if part.is_empty() {
        return Answer::Reply(b"l".to_vec());
    }
    Answer::Reply(digits(&part).into_bytes())
}
