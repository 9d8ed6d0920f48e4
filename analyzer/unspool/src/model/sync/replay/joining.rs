//! Ends the object of a join when the join has returned.
//!
//! The C library may then give the thread's handle to a new thread, whose join is another object.

use foldhash::{HashMap, HashMapExt};

use super::{EAGAIN, Replay};
use crate::model::calls::Call;
use crate::model::sync::under_way::Pending;
use crate::model::{Thread, ThreadIndex};
use crate::primitives::{Kind, Operation};

/// The threads that each thread joined, in order of the join calls' times.
pub(super) fn joins(threads: &[Thread]) -> HashMap<ThreadIndex, Vec<(u64, ThreadIndex)>> {
    let mut joins: HashMap<ThreadIndex, Vec<(u64, ThreadIndex)>> = HashMap::new();
    for (index, thread) in threads.iter().enumerate() {
        if let Some((joiner, ns)) = thread.joiner.zip(thread.joined_ns) {
            joins
                .entry(joiner)
                .or_default()
                .push((ns, ThreadIndex(index)));
        }
    }
    for joined in joins.values_mut() {
        joined.sort_unstable_by_key(|(ns, _)| *ns);
    }
    joins
}

impl Replay<'_> {
    /// Handles the end of a join: notes the joined thread, and that its handle is free.
    pub(super) fn joined(&mut self, pending: &Pending, call: &Call, left_ns: u64) {
        let tries = pending.primitive.operation == Operation::TryJoin;
        let succeeded = match call.result {
            // glibc's and musl's threads wait until a word has changed.
            Some(EAGAIN) => pending.alone,
            result => result.unwrap_or(u64::from(tries)) == 0,
        };
        if pending.primitive.kind != Kind::Join || !succeeded {
            return;
        }
        let waited = pending.ended.map(|ended| ended.thread);
        let thread = waited.or(pending.owner);
        let thread = thread.or_else(|| self.joined_by(pending.thread, pending.entered_ns, left_ns));
        let object = &mut self.objects.objects[pending.object.0];
        object.joined = thread;
        object.destroyed_ns = Some(left_ns);
    }

    /// The thread that the history of threads says was joined in this time.
    fn joined_by(&self, joiner: ThreadIndex, from_ns: u64, to_ns: u64) -> Option<ThreadIndex> {
        let joined = self.joins.get(&joiner)?;
        let after = joined.partition_point(|(ns, _)| *ns <= to_ns);
        let (ns, thread) = *joined.get(after.checked_sub(1)?)?;
        (ns >= from_ns).then_some(thread)
    }
}
