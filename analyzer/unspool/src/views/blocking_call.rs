//! The name of a system call in which threads were blocked.

use super::text::line::clean;
use crate::model::schedule::{BlockedCall, FutexObject, takes_again};

/// `read() of pipe:[41234]`, or the function that waits at a futex: `pthread_mutex_lock() of m`, or
/// `pthread_cond_wait(), to take m again`.
pub(super) fn title(call: &BlockedCall) -> String {
    let wait = call.waits_for.as_ref();
    let name = wait.map_or(call.name, |wait| &wait.function);
    let takes_again = wait.is_some_and(|wait| takes_again(wait.kind, &wait.function));
    match object(call) {
        Some(object) if takes_again => format!("{name}(), to take {object} again"),
        Some(object) => format!("{name}() of {object}"),
        None => format!("{name}()"),
    }
}

/// The file of the call, or the object that its thread waits for: a name or an address.
fn object(call: &BlockedCall) -> Option<String> {
    let wait = call.waits_for.as_ref();
    let of_futex = wait
        .and_then(|wait| wait.object.as_ref())
        .map(|object| match object {
            FutexObject::Named { name, .. } => clean(name),
            FutexObject::At(address) => format!("{address:#x}"),
        });
    of_futex.or_else(|| (!call.file.is_empty()).then(|| clean(&call.file)))
}
