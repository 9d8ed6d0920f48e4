//! `QCatchSyscalls`: stop where system calls begin and end.

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::subscription::stop_policy::SyscallFilter;

/// `0`, or `1` and the numbers of those that matter; without any, all do.
pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
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
