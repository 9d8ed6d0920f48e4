//! `qAttached`: whether leaving should mean detaching (1) or killing (0).

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::tracee::Tracee;

/// `:PID` if there may be several.
pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let pid = rest.strip_prefix(b":").and_then(number);
    let meant = |process: &&mut Tracee| pid.is_none_or(|pid| process.pid().0 as u64 == pid);
    let attached = debuggee
        .family
        .members()
        .find(meant)
        .is_some_and(|p| p.attached);
    Answer::Reply(if attached { b"1" } else { b"0" }.to_vec())
}
