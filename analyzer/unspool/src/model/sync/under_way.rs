//! Tracks pending calls, and which of them are parts of other calls.

use foldhash::HashMap;

use super::holds::Held;
use super::objects::{ObjectIndex, UseIndex};
use super::queues::Place;
use super::wakes::Ender;
use crate::model::ThreadIndex;
use crate::primitives::{Operation, Primitive};

/// A call that has not ended.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) thread: ThreadIndex,
    pub(super) primitive: &'static Primitive,
    pub(super) object: ObjectIndex,
    pub(super) used: UseIndex,
    pub(super) entered_ns: u64,
    /// True if the wait has a timeout.
    pub(super) timed: bool,
    /// The holder when the call began, and where it took the object, if recorded. If it was a
    /// reader that has released the lock, another reader.
    pub(super) holder: Option<(ThreadIndex, Option<UseIndex>)>,
    /// The owner by the object's memory when the system call began. It may be the thread itself, or
    /// a thread that has ended.
    pub(super) owner: Option<ThreadIndex>,
    /// Only the system call was seen, neither the acquisition nor the release.
    pub(super) alone: bool,
    /// It counts as waiting for its object.
    pub(super) queued: bool,
    /// Its place in the queue for it.
    pub(super) place: Option<Place>,
    /// It made a futex system call.
    pub(super) slept: bool,
    /// Its last wait in the kernel reached its time limit.
    pub(super) timed_out: bool,
    /// The thread that ended the wait.
    pub(super) ended: Option<Ender>,
    /// The changed word and this call's number, while the thread that changed the word is unknown.
    pub(super) stale: Option<(u64, u64)>,
    /// The mutex that a wait released, or the lock that an unlock released.
    pub(super) given_up: Option<Held>,
    /// musl's wait at a condition has called the function that releases the mutex.
    pub(super) released: bool,
    /// The end of its last system call after which it may have waited again.
    pub(super) returned_ns: Option<u64>,
}

impl Pending {
    /// True if a thread can be cancelled in this call (POSIX, "Cancellation Points").
    pub(super) fn can_be_cancelled(&self) -> bool {
        let operation = self.primitive.operation;
        matches!(operation, Operation::Wait | Operation::Join)
    }
}

/// The role of a call in the analysis.
#[derive(Debug)]
pub(super) enum Under {
    Own(Box<Pending>),
    /// A part of another call, with that call's number.
    Part(u64),
    /// A call of no primitive.
    Plain,
}

/// All pending calls, by their numbers.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    calls: HashMap<u64, Under>,
}

impl UnderWay {
    pub(super) fn insert(&mut self, number: u64, under: Under) {
        self.calls.insert(number, under);
    }

    /// Ends a call, and returns its pending state unless it is part of another call.
    pub(super) fn end(&mut self, number: u64) -> Option<Box<Pending>> {
        match self.calls.remove(&number)? {
            Under::Own(pending) => Some(pending),
            _ => None,
        }
    }

    pub(super) fn own(&self, number: u64) -> Option<&Pending> {
        match self.calls.get(&number)? {
            Under::Own(pending) => Some(pending),
            _ => None,
        }
    }

    pub(super) fn own_mut(&mut self, number: u64) -> Option<&mut Pending> {
        match self.calls.get_mut(&number)? {
            Under::Own(pending) => Some(pending),
            _ => None,
        }
    }

    /// The wait of a thread that has given up this mutex.
    pub(super) fn gave_up(&self, thread: ThreadIndex, mutex: ObjectIndex) -> Option<u64> {
        let mut calls = self.calls.iter();
        let found = calls.find(|(_, under)| {
            let Under::Own(pending) = under else {
                return false;
            };
            let given_up = pending.given_up.map(|held| held.object);
            let waits = pending.primitive.operation.may_wait();
            pending.thread == thread && waits && given_up == Some(mutex)
        });
        found.map(|(number, _)| *number)
    }

    /// The calls that wait for an object which a thread holds.
    pub(super) fn behind_mut(
        &mut self,
        object: ObjectIndex,
        holder: ThreadIndex,
    ) -> impl Iterator<Item = &mut Pending> {
        let own = self.calls.values_mut().filter_map(|under| match under {
            Under::Own(pending) => Some(&mut **pending),
            _ => None,
        });
        own.filter(move |pending| {
            pending.object == object && pending.holder.is_some_and(|(thread, _)| thread == holder)
        })
    }

    /// The call of a primitive that contains a call.
    pub(super) fn outer(&self, within: Option<u64>) -> Option<u64> {
        let number = within?;
        match self.calls.get(&number)? {
            Under::Own(_) => Some(number),
            Under::Part(outer) => Some(*outer),
            Under::Plain => None,
        }
    }
}
