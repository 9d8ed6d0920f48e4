//! Stops running threads for as long as it takes to read them. No stop is reported.

use crate::sys::Tid;

use super::Tracee;

/// Threads that were running and are stopped to be read.
#[must_use]
pub(crate) struct PausedThreads {
    /// True if starts were already blocked.
    blocked: bool,
}

impl Tracee {
    /// Stops those of the threads that are running; [`unpause_threads`](Self::unpause_threads) must
    /// follow. Leaves out a thread that cannot stop now, because it has ended or waits in vfork(2).
    pub(crate) fn pause_threads(&mut self, tids: &[Tid]) -> PausedThreads {
        let mut ran = tids.to_vec();
        ran.retain(|tid| self.process.interrupt(*tid));
        // Reports that arrive meanwhile must not start the threads.
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

    /// Resumes the threads that were running, unless one of them has something to report.
    pub(crate) fn unpause_threads(&mut self, paused: PausedThreads) {
        self.process.run.unblock_starts(paused.blocked);
        if self.process.run.may_start() && self.process.run.goes_on() {
            // Other threads may have reported something meanwhile.
            self.start_all();
        }
    }

    /// Handles the available reports of threads that the stub has interrupted. Asks for each thread
    /// separately, because a wait for any thread makes the kernel search all stopped ones first.
    /// Does not block, because an exec by another thread may end a thread without a report.
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
