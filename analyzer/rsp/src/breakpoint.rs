//! Breakpoints and watchpoints, as in the `Z` and `z` packets.

use std::fmt;

/// One breakpoint or watchpoint in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Breakpoint {
    /// The kind of breakpoint.
    pub kind: BreakpointKind,
    /// Address in the target's memory (avma), without the Thumb bit.
    pub address: u64,
    /// The packet's "kind" field. For breakpoints: the size of the breakpoint instruction (x86 1,
    /// AArch64 4, ARM 2 Thumb, 3 32-bit Thumb-2, 4 A32). For watchpoints: the number of watched
    /// bytes.
    pub size: u8,
}

impl Breakpoint {
    /// A software breakpoint.
    pub fn software(address: u64, size: u8) -> Breakpoint {
        Breakpoint {
            kind: BreakpointKind::Software,
            address,
            size,
        }
    }
}

impl fmt::Display for Breakpoint {
    /// The packet's form: `0,401000,1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind as u8;
        write!(f, "{kind},{:x},{:x}", self.address, self.size)
    }
}

/// The five kinds; the discriminant is the digit after `Z` (RSP, "Packets").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BreakpointKind {
    /// `Z0`: replaces an instruction in memory.
    Software = 0,
    /// `Z1`: uses a debug register.
    Hardware = 1,
    /// `Z2`: stops when the bytes are written.
    Write = 2,
    /// `Z3`: stops when the bytes are read.
    Read = 3,
    /// `Z4`: stops when the bytes are read or written.
    Access = 4,
}
