//! `qAttached`: whether leaving should mean detaching (1) or killing (0).

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let attached = debuggee.process.as_ref().is_some_and(|p| p.attached);
    Answer::Reply(if attached { b"1" } else { b"0" }.to_vec())
}
