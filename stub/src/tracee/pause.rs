//! Stops running threads for as long as it takes to read them. No stop is reported.

use crate::arch;
use crate::ptrace::blocked_call::BlockedCall;
use crate::samples::Reading;
use crate::sys::schedstat::Schedstat;
use crate::sys::stat::Stat;
use crate::sys::{Tid, proc_file, status_field};

use super::Tracee;

/// Threads that were running and are stopped to be read.
#[must_use]
pub(crate) struct PausedThreads {
    /// True if starts were already blocked.
    blocked: bool,
}

/// How often a thread has given up its processor to wait (proc(5), `status`).
fn waited(process: Tid, tid: Tid) -> Option<u64> {
    let status = proc_file::read(format!("/proc/{process}/task/{tid}/status"));
    status_field(&String::from_utf8_lossy(&status), "voluntary_ctxt_switches")
}

impl Tracee {
    /// Stops those of the threads that are running; [`unpause_threads`](Self::unpause_threads) must
    /// follow. Leaves out a thread that cannot stop now, because it has ended or is in an
    /// uninterruptible wait.
    pub(crate) fn pause_threads(&mut self, tids: &[Tid]) -> PausedThreads {
        let mut ran = tids.to_vec();
        ran.retain(|tid| self.process.interrupt(*tid));
        // Reports that arrive meanwhile must not resume the threads.
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

    /// Stops a running thread to read its registers and as much of the stack as fits. `None` if it
    /// may still have the stack of a wait: it has got its processor only now, in a system call, and
    /// `waits` does not show that it has not waited since the last stop there. Takes one thread at
    /// a time, so that none stays stopped until another gets a processor.
    pub(crate) fn sample(
        &mut self,
        tid: Tid,
        stack: &mut [u8],
        waits: &mut Option<u64>,
    ) -> Option<Reading> {
        let process = self.process.pid();
        let turns = || Some(Schedstat::of_thread(process, tid)?.turns);
        let before = turns();
        let stat = Stat::of_thread(process, tid)?;
        if stat.state() != Some(b'R') {
            return None;
        }
        let paused = self.pause_threads(&[tid]);
        let kept_processor = before.is_some() && turns() == before;
        let mut may_be_waiting = || {
            // The stop counts as a wait, too.
            let expected = waits.map(|waits| waits + 1);
            *waits = expected;
            if kept_processor || !BlockedCall::is_in_call(process, tid) {
                return false;
            }
            *waits = waited(process, tid);
            waits.is_none() || *waits != expected
        };
        let reading = self.process.stopped(tid).and_then(|stopped| {
            if may_be_waiting() {
                return None;
            }
            let numbers = arch::SAMPLED.iter().map(|(_, number)| *number);
            let words = numbers.map(|number| stopped.word(number));
            Some((words.collect::<Option<_>>()?, stopped.sp().ok()?))
        });
        let reading = reading.map(|(registers, sp)| Reading {
            registers,
            length: self.read_memory(sp, stack).unwrap_or(0),
            processor: stat.processor().unwrap_or(0),
        });
        self.unpause_threads(paused);
        reading
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
