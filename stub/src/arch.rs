//! The machine this server is compiled for: registers, trap instructions, how a trap reports.
//!
//! The only place that asks the compiler for the architecture. The files in `arch/` hold the same
//! constants and functions in the same order; everything above uses them by these names, and
//! register layouts only through the table.

// All are compiled everywhere: what they decode is tested wherever the tests run.
#[allow(dead_code, unused_imports, reason = "one of them is used")]
mod aarch64;
#[allow(dead_code, unused_imports, reason = "one of them is used")]
mod arm;
mod table;
pub(crate) mod watch;
#[allow(dead_code, unused_imports, reason = "one of them is used")]
mod x86_64;

cfg_select! {
    target_arch = "x86_64" => { use x86_64 as machine; }
    target_arch = "aarch64" => { use aarch64 as machine; }
    target_arch = "arm" => { use arm as machine; }
}

pub(crate) use machine::{
    CAN_STEP, EXPEDITED, NAME, PC, SETS, SLOT_REACH, SP, THREAD_POINTER, TLS_BELOW_POINTER,
    TRAP_ADVANCE, Word, before_write, can_watch, displace, emulate, is_system_call, is_trap_report,
    may_displace, next_places, place, system_call, trap, triggered, watch,
};
pub(crate) use table::{Register, layout};

/// An address as the wide type used above this layer.
#[allow(
    clippy::useless_conversion,
    reason = "not useless where addresses have 32 bits"
)]
pub(crate) fn wide(address: Word) -> u64 {
    address.into()
}

/// The program's memory, as its instructions see it.
pub(crate) trait Memory {
    /// Reads all of `into`; `false` if not all can be read.
    fn load(&self, address: u64, into: &mut [u8]) -> bool;
    /// Writes all of `bytes` where the program itself may; `false` if it may not.
    fn store(&self, address: u64, bytes: &[u8]) -> bool;
}

/// An instruction's stand-in for another place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Displaced {
    /// What is executed there: one instruction, then a jump to the original's successor.
    pub(crate) code: Vec<u8>,
    /// The original's length.
    pub(crate) length: usize,
}

#[cfg(all(test, target_arch = "x86_64"))]
#[path = "arch/x86_64/against_processor.rs"]
mod against_processor;
