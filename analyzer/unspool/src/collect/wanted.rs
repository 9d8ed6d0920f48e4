//! Further reads that an inspection needs, as the analysis of its first part finds out.
//!
//! Apart from `thread_reader`, which makes these reads, because the caller of a recording chooses
//! them.

use std::ops::Range;

/// Further reads that would show what threads wait for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Threads to read again, because they may have moved between the reads.
    pub threads: Vec<u64>,
    /// Memory to read after that.
    pub memory: Vec<Range<u64>>,
}

impl Wanted {
    /// True if nothing more is needed.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.memory.is_empty()
    }
}
