//! `QNonStop`: all-stop is what there is.

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(_: &mut Session, _: &mut Debuggee, rest: &[u8]) -> Answer {
    if rest == b"0" {
        Answer::ok()
    } else {
        Answer::Reply(Vec::new())
    }
}
