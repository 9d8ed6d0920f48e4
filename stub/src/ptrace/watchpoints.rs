//! Debug registers: every thread has its own, and all watch the same.

use nix::errno::Errno;

use crate::arch;
use crate::arch::watch::Watch;
use crate::sys::Tid;
use crate::sys::ptrace::SignalInfo;

use super::process::Process;
use super::thread::{Pending, State};

impl Process {
    /// What the debug registers watch.
    pub(crate) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    /// Watches this in addition; all threads must be stopped. `false`: there are too few debug
    /// registers, or this machine cannot watch that.
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

    /// Watches this no longer; all threads must be stopped. Removing what is not there is no error.
    pub(crate) fn remove_watch(&mut self, watch: Watch) -> Result<(), Errno> {
        self.watches.retain(|other| *other != watch);
        self.write_watches()
    }

    /// Watches nothing any more.
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

    /// Fills a new thread's debug registers, which are empty.
    pub(crate) fn watch_thread(&self, tid: Tid) {
        if !self.watches.is_empty() {
            let _ = arch::watch(tid, &self.watches);
        }
    }

    /// Reports a `SIGTRAP` that came from a debug register. Whether it did.
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
