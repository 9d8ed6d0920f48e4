//! Packets that select the events that stop the program: `QCatchSyscalls`, `QThreadEvents`,
//! `QPassSignals`, `QProgramSignals`.

use nix::errno::Errno;

use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::signal::from_gdb;
use crate::subscription::stop_policy::{SignalSet, SyscallFilter};

use super::Answer;

/// `QPassSignals`: signals that the stub delivers without a stop.
pub(super) fn pass_signals(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let set = signals(rest);
    debuggee.set_stop_policy(|stop_policy| stop_policy.pass = set);
    Answer::ok()
}

/// Parses a list of GDB's numbers, `hex;hex;...`. Ignores numbers of signals that Linux lacks.
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

/// `QProgramSignals`: signals that the stub delivers on detach if the client has seen them.
pub(super) fn program_signals(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let set = signals(rest);
    debuggee.set_stop_policy(|stop_policy| stop_policy.deliver = Some(set));
    Answer::ok()
}

/// `QCatchSyscalls`: stop at the entry and return of system calls.
///
/// `0` turns it off. `1` with numbers selects these calls, `1` alone all calls.
pub(super) fn catch_syscalls(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let calls = match rest {
        b"0" => Some(SyscallFilter::None),
        b"1" => Some(SyscallFilter::All),
        [b'1', b';', list @ ..] => list
            .split(|byte| *byte == b';')
            .map(number)
            .collect::<Option<_>>()
            .map(SyscallFilter::These),
        _ => None,
    };
    let Some(calls) = calls else {
        return Answer::error(Errno::EINVAL);
    };
    debuggee.set_stop_policy(|stop_policy| stop_policy.calls = calls);
    Answer::ok()
}

/// `QThreadEvents`: stop when a thread begins (`create`) and when it ends (`w`).
pub(super) fn thread_events(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(nix::errno::Errno::EINVAL),
    };
    debuggee.set_stop_policy(|stop_policy| stop_policy.thread_events = on);
    Answer::ok()
}
