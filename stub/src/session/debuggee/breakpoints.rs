//! Software breakpoints (`Z0 z0`).

use gdbstub::target::TargetResult;
use gdbstub::target::ext::breakpoints::{Breakpoints, SwBreakpoint, SwBreakpointOps};
use nix::errno::Errno;

use super::{Debuggee, refused};
use crate::arch;

impl Breakpoints for Debuggee {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }
}

impl SwBreakpoint for Debuggee {
    fn add_sw_breakpoint(&mut self, at: arch::Word, kind: usize) -> TargetResult<bool, Self> {
        let process = self.live().ok_or_else(|| refused(Errno::ESRCH))?;
        process.plant(arch::wide(at), kind).map_err(refused)?;
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, at: arch::Word, _kind: usize) -> TargetResult<bool, Self> {
        if let Some(process) = self.live() {
            process.unplant(arch::wide(at));
        }
        Ok(true)
    }
}
