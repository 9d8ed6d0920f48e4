//! The memory of the handler for `SIGTRAP` in the program: what is where, from the handler's start.
//!
//! ```text
//! 0           the handler
//! POOL        where the collectors' pool is, or 0
//! FORMER      the program's own handler, or 0
//! RANGES      where collectors are: start and end of each
//! DEFAULT     a `struct sigaction` of zeroes; behind it the actions that install the handler and the former one
//! TABLE       of each trap: its address, where the copy of its instruction is; by a hash of the address
//! COPIES      copies of instructions, for traps near by
//! ```

pub(crate) const POOL: u64 = 0x400;
pub(crate) const FORMER: u64 = 0x408;
pub(crate) const RANGES: u64 = 0x410;
pub(crate) const DEFAULT: u64 = 0x510;
pub(crate) const TABLE: u64 = 0x1000;
/// Room for one copy.
pub(crate) const COPY_SIZE: usize = 48;
