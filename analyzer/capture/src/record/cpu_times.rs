//! The record of the threads' processor times, where the kernel's schedule is not recorded.

/// The processor times of threads when the recorder read them from the kernel. A thread that is
/// missing here, was present before, and has not ended has unchanged times: it was blocked.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CpuTimes {
    /// Time of the read.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Threads whose times have changed.
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<CpuTime>,
}

/// A thread's processor times since it started.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct CpuTime {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// Time on a processor in nanoseconds.
    #[prost(uint64, tag = "2")]
    pub on_cpu_ns: u64,
    /// Time spent waiting for a processor in nanoseconds.
    #[prost(uint64, tag = "3")]
    pub runnable_ns: u64,
}
