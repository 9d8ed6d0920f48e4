//! The waits of inspected threads for other processes, when a recording ends.

/// A process that runs on the same machine.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OtherProcess {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub pid: u64,
    /// The name of its program; empty if unknown.
    #[prost(string, tag = "2")]
    pub program: String,
}

/// What the system call works on in which a thread was inspected, as `/proc` shows it after the
/// preceding inspection.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CallSubject {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// The file's name, e.g. `pipe:[7]`; empty if unknown.
    #[prost(string, tag = "2")]
    pub file: String,
    /// The processes that can end the call: they have the other end of the pipe, hold the lock of
    /// the file, or are the awaited children.
    #[prost(message, repeated, tag = "3")]
    pub processes: Vec<OtherProcess>,
    /// True if no further process can have the other end of the pipe.
    #[prost(bool, tag = "4")]
    pub is_complete: bool,
}

/// Threads of one or more processes that were all, at one moment, in the waits in which the
/// preceding inspections found them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unchanged {
    /// The threads.
    #[prost(uint64, repeated, tag = "1")]
    pub tids: Vec<u64>,
}
