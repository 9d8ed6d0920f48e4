//! Maps TIDs to threads over time, because the kernel reuses TIDs.

use foldhash::{HashMap, HashMapExt};

use crate::model::{Thread, ThreadIndex};

/// For each TID its threads, in the order in which they began.
#[derive(Debug)]
pub(in crate::model) struct Lives {
    of: HashMap<u64, Vec<(u64, ThreadIndex)>>,
}

impl Lives {
    pub(in crate::model) fn new(threads: &[Thread]) -> Lives {
        let mut of: HashMap<u64, Vec<(u64, ThreadIndex)>> = HashMap::new();
        for (index, thread) in threads.iter().enumerate() {
            if let Some(tid) = thread.tid {
                let began = thread.started_ns.unwrap_or(0);
                of.entry(tid).or_default().push((began, ThreadIndex(index)));
            }
        }
        for lives in of.values_mut() {
            lives.sort();
        }
        Lives { of }
    }

    /// The thread that had this TID at `time_ns`. Records of a thread may begin shortly before
    /// its start.
    pub(in crate::model) fn at(&self, tid: u64, time_ns: u64) -> Option<ThreadIndex> {
        let lives = self.of.get(&tid)?;
        let after = lives.partition_point(|(began, _)| *began <= time_ns);
        lives.get(after.saturating_sub(1)).map(|(_, index)| *index)
    }
}
