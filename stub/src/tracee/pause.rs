//! Looking at threads that run: each is stopped for as long as it takes, by the kernel's interrupt, and nobody is told.

use crate::sys::Tid;

use super::Tracee;
use crate::ptrace::thread::{Running, State};

/// Threads that ran and were stopped for a look.
#[must_use]
pub(crate) struct PausedThreads {
    halting: bool,
}

impl Tracee {
    /// Stops those of the threads that run. One that cannot be stopped now (it has ended, or waits in vfork(2) for its child)
    /// is not. [`unpause_threads`](Self::unpause_threads) is to follow.
    pub(crate) fn pause_threads(&mut self, tids: &[Tid]) -> PausedThreads {
        let mut ran = tids.to_vec();
        ran.retain(|tid| {
            let running = self.stoppable(*tid);
            if let Some(running) = running {
                running.interrupt();
            }
            running.is_some()
        });
        // What else is reported meanwhile must not set them going.
        let halting = std::mem::replace(&mut self.halting, true);
        self.read_stops(&ran);
        while ran.iter().any(|tid| self.stoppable(*tid).is_some()) {
            match self.next_report(true) {
                Some((tid, status)) => self.handle(tid, status),
                None => break,
            }
        }
        PausedThreads { halting }
    }

    /// Lets those go on that ran; unless one of them had something to report, for which all are about to be halted.
    pub(crate) fn unpause_threads(&mut self, interrupted: PausedThreads) {
        self.halting = interrupted.halting;
        if self.going && !self.halting && (self.non_stop || !self.eventful) {
            // Others may have reported something meanwhile.
            self.start_all();
        }
    }

    /// Takes the reports that there are now of threads that were asked to stop, of each by itself: to find any that has stopped, the
    /// kernel looks at all that stopped before. Nobody can be waited for like that, for what another executes may
    /// take it away without a word.
    pub(super) fn read_stops(&mut self, tids: &[Tid]) {
        for tid in tids {
            if self.stoppable(*tid).is_some()
                && let Some(status) = self.report_now(*tid)
            {
                self.handle(*tid, status);
            }
        }
    }

    /// A thread that runs and can be stopped: not one that waits in vfork(2).
    fn stoppable(&self, tid: Tid) -> Option<&Running> {
        let thread = self.threads.get(&tid)?;
        match &thread.state {
            State::Running(running) if thread.vfork_child.is_none() && !thread.lends_memory => {
                Some(running)
            }
            _ => None,
        }
    }
}
