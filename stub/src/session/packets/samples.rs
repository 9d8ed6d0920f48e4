//! `QUnspoolSamples`: samples of threads (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::samples::{OffCpuRate, Rate, Samples, TimerSamples};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;

/// `HZ,STACK` begins the recording of CPU samples; the reply names the sampled modes and the size
/// of the rings. `off-cpu;STACK,RATE` then adds samples of threads that block; the reply is
/// the size of their rings. `timer;HZ,STACK` begins the recording of CPU samples by a timer. `0`
/// sends the remaining samples and ends the recording.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    if rest == b"0" {
        session.end_samples();
        return Answer::ok();
    }
    if let Some(wanted) = rest.strip_prefix(b"off-cpu;") {
        return off_cpu(session, wanted);
    }
    let (by_timer, rate) = match rest.strip_prefix(b"timer;") {
        Some(rate) => (true, rate),
        None => (false, rest),
    };
    let Some(rate) = pair(rate).and_then(|(hz, stack)| Rate::new(hz, stack)) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    (session.samples, session.timer_samples) = (None, None);
    if by_timer {
        session.timer_samples = Some(TimerSamples::new(tracee.process.pid(), rate));
        return Answer::ok();
    }
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

fn off_cpu(session: &mut Session, wanted: &[u8]) -> Answer {
    let rate = pair(wanted).and_then(|(stack, rate)| OffCpuRate::new(stack, rate));
    let Some((samples, rate)) = session.samples.as_mut().zip(rate) else {
        return Answer::error(Errno::EINVAL);
    };
    Answer::Reply(match samples.open_off_cpu(rate) {
        Ok(bytes) => format!("{bytes:x}").into_bytes(),
        Err(refusal) => format!("E.{refusal}").into_bytes(),
    })
}

/// `NUMBER,NUMBER`
fn pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut numbers = bytes.split(|byte| *byte == b',').map(number);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Some(first)), Some(Some(second)), None) => Some((first, second)),
        _ => None,
    }
}
