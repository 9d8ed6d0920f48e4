//! `qSymbol`: offers to look symbols up. There is none we need.

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(_: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    Answer::ok()
}
