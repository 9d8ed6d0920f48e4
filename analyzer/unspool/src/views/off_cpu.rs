//! The reasons why threads were blocked, and why that may not be known, in the words of reports
//! and exports.

use super::{blocking_call, object_name, wording};
use crate::model::Model;
use crate::model::profile::{BlockedKey, NoOffCpu};
use crate::model::schedule::Waker;

/// The awaited object, or else the system call: `mutex queue`, `read() of pipe:[41234]`. `None` if
/// neither is known.
pub(super) fn reason(model: &Model, key: &BlockedKey) -> Option<String> {
    match (key.object, key.call) {
        (Some(object), _) => Some(object_name::shared(&model.sync, object, usize::MAX)),
        (None, Some(call)) => model.schedule.call(call).map(blocking_call::title),
        (None, None) => None,
    }
}

/// What ended a wait: `worker`, `another process or the kernel`.
pub(super) fn waker(model: &Model, waker: Waker) -> String {
    match waker {
        Waker::Thread(index) => match model.thread(index) {
            Some(thread) => wording::title(model, thread, usize::MAX),
            None => wording::identity(model, model.identity_of(index), usize::MAX),
        },
        Waker::Interrupt => wording::INTERRUPT.to_owned(),
        Waker::Outside => wording::OUTSIDE.to_owned(),
        Waker::Recorder => wording::RECORDER.to_owned(),
    }
}

/// The clause that says why a recording has no off-CPU stacks: `no samples were taken; ...`.
pub(super) fn missing(reason: &NoOffCpu) -> String {
    match reason {
        NoOffCpu::NoSamples => "no samples were taken; use `unspool record --cpu`".to_owned(),
        NoOffCpu::OlderRecorder => "the recording is from an older version of Unspool, which took \
             no stacks of blocked threads"
            .to_owned(),
        NoOffCpu::NoSchedule => "the times in which threads were blocked are not known, because \
             the kernel's schedule was not recorded"
            .to_owned(),
        NoOffCpu::Refused(reason) => {
            format!("there are no stacks of blocked threads: {reason}")
        }
    }
}
