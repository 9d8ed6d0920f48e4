//! Breakpoints and watchpoints as the `Z` and `z` packets name them.

use std::fmt;

/// One breakpoint or watchpoint of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Breakpoint {
    /// What kind of breakpoint it is.
    pub kind: BreakpointKind,
    /// Address in the target's memory (avma), without the Thumb bit.
    pub address: u64,
    /// What RSP calls "kind". Breakpoints: the size of the instruction set's breakpoint (x86 1,
    /// AArch64 4, ARM 2 Thumb, 3 32-bit Thumb-2, 4 A32). Watchpoints: number of bytes watched.
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
    /// As in the packet: `0,401000,1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind as u8;
        write!(f, "{kind},{:x},{:x}", self.address, self.size)
    }
}

/// The five kinds; the discriminant is the digit after `Z` (RSP, "Packets").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BreakpointKind {
    /// `Z0`: an instruction in memory is replaced.
    Software = 0,
    /// `Z1`: a debug register.
    Hardware = 1,
    /// `Z2`: stops when the bytes are written.
    Write = 2,
    /// `Z3`: stops when the bytes are read.
    Read = 3,
    /// `Z4`: stops when the bytes are read or written.
    Access = 4,
}
