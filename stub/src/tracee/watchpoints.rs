//! Watchpoints that clients add and remove, while every thread is stopped.

use nix::errno::Errno;

use crate::arch::watch::Watch;

use super::Tracee;

impl Tracee {
    /// Watches something in addition. Asking twice is asking once. `false`: there are too few debug
    /// registers, or this machine cannot watch that.
    pub(crate) fn watch(&mut self, watch: Watch) -> Result<bool, Errno> {
        if self.process.watches().contains(&watch) {
            return Ok(true);
        }
        self.while_halted(|tracee| tracee.process.add_watch(watch))
    }

    /// Watches this no longer. Removing what is not there is no error.
    pub(crate) fn unwatch(&mut self, watch: Watch) -> Result<(), Errno> {
        self.while_halted(|tracee| tracee.process.remove_watch(watch))
    }
}
