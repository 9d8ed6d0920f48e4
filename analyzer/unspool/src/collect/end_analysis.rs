//! What a recording needs of the analysis when it ends: what else to read, and of which processes.
//!
//! Separate because the recorder knows neither models nor findings.

use std::ops::Range;

use unspool_capture::{CallSubject, Capture, Unchanged};

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

/// Analyses the inspections of one process, and of those for which its threads wait.
pub trait EndAnalysis {
    /// Finds out, from the threads of a process read so far, which further reads would explain
    /// their waits.
    fn wanted(&mut self, capture: &Capture) -> Wanted;

    /// True for a process that has a recorder of its own.
    fn is_recorded(&self, pid: u32) -> bool;

    /// Takes the process of the last [`wanted`](Self::wanted), whose inspection has ended and which
    /// runs. Returns what the system calls of its threads work on.
    fn add(&mut self, pid: u32) -> Vec<CallSubject>;

    /// These processes will be inspected, whatever waits for them.
    fn expect(&mut self, pids: &[u32]);

    /// Another process for which threads wait.
    fn next(&mut self) -> Option<u32>;

    /// The threads that may be stuck together, and have waited since they were inspected.
    fn unchanged(&mut self) -> Unchanged;
}
