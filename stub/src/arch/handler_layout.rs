//! The memory of the `SIGTRAP` handler in the program. Offsets count from the handler's start.
//!
//! ```text
//! 0           the handler
//! POOL        address of the collectors' pool, or 0
//! FORMER      address of the program's own handler, or 0
//! RANGES      start and end of each range of collectors
//! DEFAULT     a `struct sigaction` of zeroes, followed by the actions that install the handler
//!             and the former one
//! TABLE       for each trap: its address, and the address of the copy of its instruction; a hash
//!             table by the trap's address
//! COPIES      copies of instructions, for traps nearby
//! ```

pub(crate) const POOL: u64 = 0x400;
pub(crate) const FORMER: u64 = 0x408;
pub(crate) const RANGES: u64 = 0x410;
pub(crate) const DEFAULT: u64 = 0x510;
pub(crate) const TABLE: u64 = 0x1000;
/// Size of the space for one copy, in bytes.
pub(crate) const COPY_SIZE: usize = 48;
