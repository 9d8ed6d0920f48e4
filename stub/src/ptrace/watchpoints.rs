//! Debug registers. Each thread has its own, and all threads watch the same places.

use nix::errno::Errno;

use crate::arch;
use crate::arch::watch::Watch;
use crate::sys::Tid;
use crate::sys::ptrace::SignalInfo;

use super::process::Process;
use super::thread::{Pending, State};

impl Process {
    /// The watchpoints in the debug registers.
    pub(crate) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// Adds a watchpoint. All threads must be stopped. Returns `false` if there are too few debug
    /// registers, or if this machine cannot watch the place.
    pub(crate) fn add_watch(&mut self, watch: Watch) -> Result<bool, Errno> {
        let mut wanted = self.watches.clone();
        wanted.push(watch);
        if !arch::can_watch(self.current(), &wanted) {
            return Ok(false);
        }
        let former = std::mem::replace(&mut self.watches, wanted);
        self.write_watches().inspect_err(|_| {
            self.watches = former;
            let _ = self.write_watches();
        })?;
        Ok(true)
    }

    /// Removes a watchpoint. All threads must be stopped. Removing a watchpoint that does not exist
    /// is not an error.
    pub(crate) fn remove_watch(&mut self, watch: Watch) -> Result<(), Errno> {
        self.watches.retain(|other| *other != watch);
        self.write_watches()
    }

    /// Removes all watchpoints.
    pub(crate) fn remove_watches(&mut self) {
        if !self.watches.is_empty() {
            self.watches.clear();
            let _ = self.write_watches();
        }
    }

    fn write_watches(&self) -> Result<(), Errno> {
        for (tid, thread) in &self.threads {
            if matches!(thread.state, State::Stopped(_)) {
                match arch::watch(*tid, &self.watches) {
                    // A thread that has been killed meanwhile watches nothing.
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    /// Writes the watchpoints to the debug registers of a new thread, which are still empty.
    pub(crate) fn watch_thread(&self, tid: Tid) {
        if !self.watches.is_empty() {
            let _ = arch::watch(tid, &self.watches);
        }
    }

    /// Queues a report for a `SIGTRAP` that a debug register raised. Returns true if one did.
    pub(crate) fn watch_trap(&mut self, tid: Tid, info: &SignalInfo) -> bool {
        if self.watches.is_empty() {
            return false;
        }
        let Some(watch) = arch::triggered(tid, info, &self.watches) else {
            return false;
        };
        self.report(tid, Pending::Watch(watch));
        true
    }
}
