//! Adds and removes watchpoints while every thread is stopped.

use nix::errno::Errno;

use crate::arch::watch::Watch;

use super::Tracee;

impl Tracee {
    /// Adds a watchpoint, unless it exists already. False if there are too few debug registers, or
    /// if this machine cannot watch that.
    pub(crate) fn watch(&mut self, watch: Watch) -> Result<bool, Errno> {
        if self.process.watches().contains(&watch) {
            return Ok(true);
        }
        // Only stopped threads can get debug registers.
        self.leave_none_asleep();
        self.while_halted(|tracee| tracee.process.add_watch(watch))
    }

    /// Removes a watchpoint. A missing one is not an error.
    pub(crate) fn unwatch(&mut self, watch: Watch) -> Result<(), Errno> {
        self.while_halted(|tracee| tracee.process.remove_watch(watch))
    }
}
