//! The record of a thread that another process of the recording created.

use super::{ModuleLoaded, Snapshot};

/// A thread of a process in `Processes` was created with this stack of its creator, in the call of
/// clone(2).
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreationStack {
    /// Time of the creation.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// The created thread.
    #[prost(uint64, tag = "2")]
    pub tid: u64,
    /// The number of the stack, counted from 0.
    #[prost(uint32, tag = "3")]
    pub stack: u32,
    /// The stack, in the first record with its number.
    #[prost(message, optional, tag = "4")]
    pub snapshot: Option<Snapshot>,
    /// The number of the code that the process had mapped then, counted from 0.
    #[prost(uint32, tag = "5")]
    pub code: u32,
    /// The modules of this code, in the first record with its number.
    #[prost(message, repeated, tag = "6")]
    pub modules: Vec<ModuleLoaded>,
    /// Address of the thread function, without Thumb bit, if the stack shows it.
    #[prost(uint64, optional, tag = "7")]
    pub routine: Option<u64>,
    /// Number of innermost frames that belong to the creation function, if no name shows it; else
    /// 0.
    #[prost(uint32, tag = "8")]
    pub inner: u32,
}
