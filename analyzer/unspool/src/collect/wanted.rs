//! What more an inspection has to read, as the analysis of its first part finds.
//!
//! Apart from `thread_reader`, which reads it, because the caller of a recording finds it.

use std::ops::Range;

/// What else to read to find out what threads wait for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Threads to read again, because they may have moved between the reads.
    pub threads: Vec<u64>,
    /// Memory to read after that.
    pub memory: Vec<Range<u64>>,
}

impl Wanted {
    /// Nothing more is needed.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.memory.is_empty()
    }
}
