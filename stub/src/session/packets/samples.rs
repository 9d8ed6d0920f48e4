//! `QUnspoolSamples`: the kernel's samples of the threads' stacks (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::samples::{OffCpuRate, Rate, Samples};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;

/// `HZ,STACK` begins the recording; the reply names the sampled modes and the size of the rings.
/// `HZ,STACK;STACK,RATE` also samples threads that stop running. The reply then ends with
/// `;off-cpu`, or with the reason why the kernel refuses that. `0` sends the remaining samples and
/// ends the recording.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    if rest == b"0" {
        session.notify_samples(true);
        session.samples = None;
        return Answer::ok();
    }
    let mut parts = rest.split(|byte| *byte == b';').map(pair);
    let (rate, off_cpu) = match (parts.next(), parts.next(), parts.next()) {
        (Some(Some((hz, stack))), None, None) => (Rate::new(hz, stack), None),
        (Some(Some((hz, stack))), Some(Some((off_cpu, per_second))), None) => {
            match OffCpuRate::new(off_cpu, per_second) {
                None => (None, None),
                off_cpu => (Rate::new(hz, stack), off_cpu),
            }
        }
        _ => (None, None),
    };
    let Some(rate) = rate else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    session.samples = None;
    let mut samples = match Samples::open(tracee.process.pid(), rate) {
        Ok(samples) => samples,
        Err(refusal) => return Answer::Reply(format!("E.{refusal}").into_bytes()),
    };
    let modes = match samples.has_kernel() {
        true => "kernel",
        false => "user",
    };
    let off_cpu = match off_cpu.map(|rate| samples.open_off_cpu(rate)) {
        None => String::new(),
        Some(Ok(())) => ";off-cpu".to_owned(),
        Some(Err(refusal)) => format!(";E.{refusal}"),
    };
    let reply = format!("{modes};{:x}{off_cpu}", samples.ring_bytes());
    session.samples = Some(samples);
    Answer::Reply(reply.into_bytes())
}

/// `NUMBER,NUMBER`
fn pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut numbers = bytes.split(|byte| *byte == b',').map(number);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Some(first)), Some(Some(second)), None) => Some((first, second)),
        _ => None,
    }
}
