//! `QPassSignals`: signals the program gets without the client being asked.

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::signal::from_gdb;
use crate::subscription::stop_policy::SignalSet;

pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let set = signals(rest);
    debuggee.set_stop_policy(|stop_policy| stop_policy.pass = set);
    Answer::ok()
}

/// A list of GDB's numbers, `hex;hex;...`. Numbers Linux lacks name signals that cannot come.
pub(super) fn signals(list: &[u8]) -> SignalSet {
    let mut set = SignalSet::default();
    for digits in list.split(|byte| *byte == b';') {
        let signal = number(digits).and_then(|n| u8::try_from(n).ok());
        if let Some(signal) = signal.and_then(from_gdb) {
            set.insert(signal);
        }
    }
    set
}
