//! Finds threads by the kernel's ids, which are reused: those of the program and those of the
//! processes that it started.

use foldhash::HashMap;

use super::APART_NS;
use crate::model::ThreadIndex;
use crate::model::thread::Thread;

/// The numbers of the threads with each id, in their order.
pub(in crate::model) fn by_tid<'a>(
    threads: impl Iterator<Item = &'a Thread>,
) -> HashMap<u64, Vec<ThreadIndex>> {
    let mut by_tid: HashMap<u64, Vec<ThreadIndex>> = HashMap::default();
    for (index, thread) in threads.enumerate() {
        if let Some(tid) = thread.tid {
            by_tid.entry(tid).or_default().push(ThreadIndex(index));
        }
    }
    by_tid
}

/// The threads with each id, in the order of their beginnings.
#[derive(Debug)]
pub(super) struct ThreadIds<'a> {
    threads: &'a [Thread],
    /// The threads of other processes, whose numbers follow.
    others: &'a [Thread],
    by_tid: HashMap<u64, Vec<ThreadIndex>>,
}

impl<'a> ThreadIds<'a> {
    pub(super) fn of(threads: &'a [Thread], others: &'a [Thread]) -> ThreadIds<'a> {
        let mut ids = ThreadIds {
            threads,
            others,
            by_tid: HashMap::default(),
        };
        let mut by_tid = by_tid(threads.iter().chain(others));
        for same in by_tid.values_mut() {
            same.sort_by_key(|index| ids.thread(*index).first_ns());
        }
        ids.by_tid = by_tid;
        ids
    }

    /// A thread by its number.
    pub(super) fn thread(&self, index: ThreadIndex) -> &'a Thread {
        match index.0.checked_sub(self.threads.len()) {
            Some(other) => &self.others[other],
            None => &self.threads[index.0],
        }
    }

    /// True if a thread has or had the id.
    pub(super) fn has(&self, tid: u64) -> bool {
        self.by_tid.contains_key(&tid)
    }

    /// The thread that had an id at a moment.
    pub(super) fn at(&self, tid: u64, ns: u64) -> Option<ThreadIndex> {
        let all = self.by_tid.get(&tid)?;
        let later = all.partition_point(|index| {
            let first = self.thread(*index).first_ns();
            first.is_none_or(|first| first <= ns)
        });
        let one = *all.get(later.saturating_sub(1))?;
        // Later, a process that is not known may have the id.
        let ended = self.thread(one).ended_ns;
        ended
            .is_none_or(|ended| ns <= ended.saturating_add(APART_NS))
            .then_some(one)
    }
}
