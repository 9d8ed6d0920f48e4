//! The record of the place at which threads wait in futex calls.

use super::{ModuleLoaded, Snapshot};

/// Threads waited at this place in one of the futex calls of a `Schedule` or of `Processes`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FutexPlace {
    /// The id of the call in the schedule. Its first argument is the address of the futex.
    #[prost(uint64, tag = "1")]
    pub call: u64,
    /// The program counter, the link register if the server sends it, and the part of the stack
    /// that leads to the function that called. The stack pointer is not the thread's: only
    /// distances from it count. Words that cannot be return addresses are 0.
    #[prost(message, optional, tag = "2")]
    pub snapshot: Option<Snapshot>,
    /// The number of the code that the process had mapped then, as in `CreationStack`. None for
    /// the program itself.
    #[prost(uint32, optional, tag = "3")]
    pub code: Option<u32>,
    /// The modules of this code, in the first record with its number.
    #[prost(message, repeated, tag = "4")]
    pub modules: Vec<ModuleLoaded>,
}
