//! Detects priority-inheriting mutexes that the kernel refuses a thread, because it could never get
//! them.

use super::Replay;
use crate::model::ThreadIndex;
use crate::model::calls::{Call, Calls, PathId};
use crate::model::sync::naming::caller;
use crate::model::sync::objects::ObjectIndex;
use crate::model::sync::under_way::Pending;
use crate::primitives::{Operation, Primitive};

const EDEADLK: i32 = -35;

/// A refused mutex. The C library then lets the thread wait forever, at a word that is not a mutex.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) object: ObjectIndex,
    /// The owner, by the object's memory.
    pub(super) owner: Option<ThreadIndex>,
    path: PathId,
}

impl Replay<'_> {
    /// Notes a refusal when a bare system call of a lock ends with it.
    pub(super) fn note_refusal(&mut self, pending: &Pending, call: &Call) {
        let refused = call.result.is_some_and(|result| result as i32 == EDEADLK);
        if refused && pending.alone && pending.primitive.operation == Operation::Lock {
            let refused = Refused {
                object: pending.object,
                owner: pending.owner,
                path: call.path,
            };
            self.refused.insert(call.thread, refused);
        }
    }

    /// True if the thread's next system call is the wait that follows the refusal.
    pub(super) fn goes_on_for(
        &self,
        refused: &Refused,
        calls: &Calls,
        call: &Call,
        primitive: &Primitive,
        address: u64,
    ) -> bool {
        let here = caller(calls.path(call.path));
        primitive.operation == Operation::Lock
            && here.is_some()
            && here == caller(calls.path(refused.path))
            && self.objects.known(primitive.kind, address).is_none()
    }
}
