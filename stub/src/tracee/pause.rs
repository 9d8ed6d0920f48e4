//! Stops running threads for as long as it takes to read them. No stop is reported.

use crate::arch;
use crate::sys::{Tid, proc_file};

use super::Tracee;

/// Threads that were running and are stopped to be read.
#[must_use]
pub(crate) struct PausedThreads {
    /// True if starts were already blocked.
    blocked: bool,
}

/// How often a thread has given up its processor to wait (proc(5), `status`).
fn voluntary_switches(process: Tid, tid: Tid) -> Option<u64> {
    let status = proc_file::read(format!("/proc/{process}/task/{tid}/status"));
    let status = String::from_utf8_lossy(&status);
    let line = |line: &str| {
        line.strip_prefix("voluntary_ctxt_switches:")?
            .trim()
            .parse()
            .ok()
    };
    status.lines().find_map(line)
}

impl Tracee {
    /// Stops those of the threads that are running; [`unpause_threads`](Self::unpause_threads) must
    /// follow. Leaves out a thread that cannot stop now, because it has ended or is in an
    /// uninterruptible wait.
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

    /// Stops a thread to read the registers `arch::SAMPLED` and as much of the stack as fits.
    /// Returns the registers and the number of bytes, or `None` if the thread has blocked. Takes
    /// one thread at a time, so that none stays stopped until another gets a processor.
    pub(crate) fn sample(&mut self, tid: Tid, stack: &mut [u8]) -> Option<(Vec<u64>, usize)> {
        let before = voluntary_switches(self.process.pid(), tid)?;
        let paused = self.pause_threads(&[tid]);
        // The stop is one switch. A thread that has blocked meanwhile was running elsewhere.
        let has_blocked = voluntary_switches(self.process.pid(), tid) > Some(before + 1);
        let registers = self.process.stopped(tid).and_then(|stopped| {
            let numbers = arch::SAMPLED.iter().map(|(_, number)| *number);
            let words = numbers.map(|number| stopped.word(number));
            Some((words.collect::<Option<_>>()?, stopped.sp().ok()?))
        });
        let sample = registers.map(|(registers, sp)| {
            let length = self.read_memory(sp, stack).unwrap_or(0);
            (registers, length)
        });
        self.unpause_threads(paused);
        sample.filter(|_| !has_blocked)
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
