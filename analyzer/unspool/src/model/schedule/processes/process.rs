//! One process that the program, or one of its descendants, started.

use crate::model::ThreadIndex;

/// A process that the program or one of its descendants started.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Its id.
    pub pid: u64,
    /// The thread that started it.
    pub creator_tid: Option<u64>,
    /// The same thread, if it is known.
    pub creator: Option<ThreadIndex>,
    /// Start time, nanoseconds since the recording began.
    pub started_ns: u64,
    /// When its last thread ended, if that was recorded.
    pub ended_ns: Option<u64>,
    /// Path of the executed file; empty if unknown, or if it executed none.
    pub executable: String,
    /// The kernel's names of the programs that it executed, in order. Empty if it executed none.
    pub executed: Vec<String>,
    /// The kernel's name of the program that its creator ran when it started it; empty if the
    /// creator is a thread of the program itself, or not known.
    pub inherited: String,
    /// The program that it ran last, in `Processes::programs`; none if that is not known.
    pub program: Option<usize>,
    /// Number of its threads in `Processes::threads`; 0 if they were not recorded.
    pub threads: usize,
    /// The first of them.
    pub first_thread: usize,
    /// It, or a process that it descends from, was recorded as the program was:
    /// `Model::recorded` has it.
    pub is_apart: bool,
}

impl Process {
    /// A process of which only the start is known.
    pub(in crate::model) fn new(pid: u64, creator_tid: Option<u64>, started_ns: u64) -> Process {
        Process {
            pid,
            creator_tid,
            creator: None,
            started_ns,
            ended_ns: None,
            executable: String::new(),
            executed: Vec::new(),
            inherited: String::new(),
            program: None,
            threads: 0,
            first_thread: 0,
            is_apart: false,
        }
    }

    /// True if the kernel's schedule has its threads.
    pub fn is_recorded(&self) -> bool {
        self.threads > 0
    }
}
