//! `QUnspoolSamples`: the kernel's samples of the threads' stacks (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::samples::{Rate, Samples};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;

/// `HZ,STACK` begins the recording; the reply names the sampled modes and the size of the rings.
/// `0` sends the remaining samples and ends the recording.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    if rest == b"0" {
        session.notify_samples(true);
        session.samples = None;
        return Answer::ok();
    }
    let mut numbers = rest.split(|byte| *byte == b',').map(number);
    let (Some(Some(hz)), Some(Some(stack)), None) =
        (numbers.next(), numbers.next(), numbers.next())
    else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(rate) = Rate::new(hz, stack) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    session.samples = None;
    match Samples::open(tracee.process.pid(), rate) {
        Ok(samples) => {
            let modes = match samples.has_kernel() {
                true => "kernel",
                false => "user",
            };
            let reply = format!("{modes};{:x}", samples.ring_bytes());
            session.samples = Some(samples);
            Answer::Reply(reply.into_bytes())
        }
        Err(refusal) => Answer::Reply(format!("E.{refusal}").into_bytes()),
    }
}
