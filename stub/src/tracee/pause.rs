//! Reading threads that run: each is stopped for as long as that takes, and no stop is reported.

use crate::sys::Tid;

use super::Tracee;

/// Threads that ran and are stopped to be read.
#[must_use]
pub(crate) struct PausedThreads {
    /// Whether starts were blocked before.
    blocked: bool,
}

impl Tracee {
    /// Stops those of the threads that run; [`unpause_threads`](Self::unpause_threads) must follow.
    /// A thread that cannot stop now, because it has ended or waits in vfork(2), is left out.
    pub(crate) fn pause_threads(&mut self, tids: &[Tid]) -> PausedThreads {
        let mut ran = tids.to_vec();
        ran.retain(|tid| self.process.interrupt(*tid));
        // Other reports that come meanwhile must not start them.
        let blocked = self.process.run.block_starts();
        self.read_stops(&ran);
        while ran.iter().any(|tid| self.process.runs_and_can_stop(*tid)) {
            match self.process.next_report(true) {
                Some((tid, status)) => self.handle(tid, status),
                None => break,
            }
        }
        PausedThreads { blocked }
    }

    /// Lets threads go on that ran, unless one of them has something to report.
    pub(crate) fn unpause_threads(&mut self, paused: PausedThreads) {
        self.process.run.unblock_starts(paused.blocked);
        if self.process.run.may_start() && self.process.run.goes_on() {
            // Others may have reported something meanwhile.
            self.start_all();
        }
    }

    /// Handles the reports that are there of threads that were asked to stop. Each is asked for by
    /// itself, because the kernel looks at all that stopped before to find any. They cannot be
    /// waited for like that: an exec by another thread may end one without a report.
    pub(super) fn read_stops(&mut self, tids: &[Tid]) {
        for tid in tids {
            if self.process.runs_and_can_stop(*tid)
                && let Some(status) = self.process.report_now(*tid)
            {
                self.handle(*tid, status);
            }
        }
    }
}
