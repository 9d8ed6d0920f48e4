//! Debug registers: every thread has its own, and all watch the same.

use nix::errno::Errno;

use crate::arch;
use crate::arch::watch::Watch;
use crate::sys::Tid;
use crate::sys::ptrace::SignalInfo;

use super::Tracee;
use crate::ptrace::thread::{Pending, State};

impl Tracee {
    /// Watches something more; all threads must be stopped. Asking twice is asking once. `false`: there are
    /// too few debug registers, or this machine cannot watch that.
    pub(crate) fn watch(&mut self, watch: Watch) -> Result<bool, Errno> {
        if self.watches.contains(&watch) {
            return Ok(true);
        }
        let mut wanted = self.watches.clone();
        wanted.push(watch);
        self.standing_still(|process| {
            if !arch::can_watch(process.current(), &wanted) {
                return Ok(false);
            }
            let former = std::mem::replace(&mut process.watches, wanted);
            process.watch_all().inspect_err(|_| {
                process.watches = former;
                // What it was before.
                let _ = process.watch_all();
            })?;
            Ok(true)
        })
    }

    /// Watches it no longer. Removing what is not there is no error.
    pub(crate) fn unwatch(&mut self, watch: Watch) -> Result<(), Errno> {
        self.standing_still(|process| {
            process.watches.retain(|other| *other != watch);
            process.watch_all()
        })
    }

    /// Watches nothing any more.
    pub(super) fn unwatch_all(&mut self) {
        if !self.watches.is_empty() {
            self.watches.clear();
            let _ = self.watch_all();
        }
    }

    fn watch_all(&self) -> Result<(), Errno> {
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

    /// A new thread's debug registers are empty.
    pub(super) fn watch_thread(&self, tid: Tid) {
        if !self.watches.is_empty() {
            let _ = arch::watch(tid, &self.watches);
        }
    }

    /// Whether a `SIGTRAP` came from a debug register; then that is to be reported.
    pub(super) fn watch_trap(&mut self, tid: Tid, info: &SignalInfo) -> bool {
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
