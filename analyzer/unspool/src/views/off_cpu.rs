//! The reasons why threads were blocked, in the words of reports and exports.

use super::wording;
use crate::model::Model;
use crate::model::profile::{BlockedKey, Waker};

/// The awaited object, or else the system call: `mutex queue`, `read() of pipe:[41234]`. `None` if
/// neither is known.
pub(super) fn reason(model: &Model, key: &BlockedKey) -> Option<String> {
    match (key.object, key.call) {
        (Some(object), _) => Some(wording::object(&model.sync, object, usize::MAX)),
        (None, Some(call)) => model.schedule.call(call).map(wording::blocking_call),
        (None, None) => None,
    }
}

/// The thread that ended a wait: `worker`, or `TID 7 of another process`.
pub(super) fn waker(model: &Model, waker: Waker) -> String {
    match waker {
        Waker::Thread(thread) => match model.thread(thread) {
            Some(thread) => wording::title(model, thread, usize::MAX),
            None => "an unknown thread".to_owned(),
        },
        Waker::Other(tid) => format!("TID {tid} of another process"),
    }
}
