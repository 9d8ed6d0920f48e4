//! Calls that have begun and not ended, and which of them are parts of others.

use foldhash::HashMap;

use super::holds::Held;
use super::objects::{ObjectIndex, UseIndex};
use super::queues::Place;
use super::wakes::Ender;
use crate::model::ThreadIndex;
use crate::primitives::Primitive;

/// A call that has not ended.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) thread: ThreadIndex,
    pub(super) primitive: &'static Primitive,
    pub(super) object: ObjectIndex,
    pub(super) used: UseIndex,
    pub(super) entered_ns: u64,
    /// It gives up after a time.
    pub(super) timed: bool,
    /// The holder when the call began, and where it took the object, if recorded.
    pub(super) holder: Option<(ThreadIndex, Option<UseIndex>)>,
    /// The owner, by the object's memory when the system call began: itself perhaps, or a thread
    /// that has ended.
    pub(super) owner: Option<ThreadIndex>,
    /// Only its system call was seen: not whether anything was got, nor when it was given up.
    pub(super) alone: bool,
    /// It counts as waiting for its object.
    pub(super) queued: bool,
    /// Its place in the queue for it.
    pub(super) place: Option<Place>,
    /// It made a futex system call.
    pub(super) slept: bool,
    /// The thread that ended the wait.
    pub(super) ended: Option<Ender>,
    /// The word that has changed, if who did that is not known yet, and this call's number.
    pub(super) stale: Option<(u64, u64)>,
    /// The mutex that a wait gave up, or what an unlock gave up.
    pub(super) given_up: Option<Held>,
}

/// What a call is to the analysis.
#[derive(Debug)]
pub(super) enum Under {
    Own(Box<Pending>),
    /// It is a part of another call.
    Part(u64),
    /// No primitive.
    Plain,
}

/// All of them, by their numbers.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    calls: HashMap<u64, Under>,
}

impl UnderWay {
    pub(super) fn insert(&mut self, number: u64, under: Under) {
        self.calls.insert(number, under);
    }

    /// A call is over; what was pending, if it was one of its own.
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

    /// The call of a primitive that a call is made in.
    pub(super) fn outer(&self, within: Option<u64>) -> Option<u64> {
        let number = within?;
        match self.calls.get(&number)? {
            Under::Own(_) => Some(number),
            Under::Part(outer) => Some(*outer),
            Under::Plain => None,
        }
    }
}
