//! Starts a program or attaches to one, and halts all its threads.

use std::time::{Duration, Instant};

use crate::ptrace::attach::{Error, Found, Program};
use crate::ptrace::process::Process;
use crate::ptrace::wait_queue::WaitQueue;
use crate::sys::Tid;

use super::Tracee;

/// Time limit for another tracer that has detached from some threads, but not all.
const TRACER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for uninterruptible waits to end before the other threads are stopped.
const WAIT_TIMEOUT: Duration = Duration::from_millis(500);
/// Time after which an attach goes on without the threads that are still in such a wait.
const STOP_TIMEOUT: Duration = Duration::from_millis(20);

impl Tracee {
    /// Starts a program and halts it before its first instruction.
    pub(crate) fn start(program: &Program, reports: WaitQueue) -> Result<Tracee, Error> {
        Process::start(program, reports).map(Tracee::new)
    }

    /// Attaches to a running process and halts it. With `leaves_asleep`, threads in calls that a
    /// stop would end early or with an error are not stopped.
    pub(crate) fn attach(
        pid: i32,
        reports: WaitQueue,
        leaves_asleep: bool,
    ) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(Process::seize(pid, reports)?);
        tracee.process.leaves_asleep = leaves_asleep;
        // New threads may appear meanwhile. The kernel traces those that a traced thread creates
        // from their first instruction.
        let deadline = Instant::now() + TRACER_TIMEOUT;
        let wait_deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let found = tracee.process.seize_new_threads();
            while tracee.process.has_uninterruptible_wait() && Instant::now() < wait_deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            tracee.halt_within(Some(STOP_TIMEOUT));
            match found {
                Found::None if tracee.process.has_all_threads() || Instant::now() > deadline => {
                    break;
                }
                Found::None | Found::Some => {}
                Found::Foreign(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Found::Foreign(tracer) => {
                    tracee.detach();
                    return Err(Error::AlreadyTraced(pid, tracer));
                }
            }
        }
        if tracee.process.end().is_some() {
            return Err(Error::NoSuchProcess(pid));
        }
        tracee.process.mark_shown(tracee.process.current());
        Ok(tracee)
    }

    /// Stops a thread that was left asleep and has left its call since.
    pub(crate) fn stop_if_awake(&mut self, tid: Tid) {
        if self.process.has_woken(tid) && !self.process.is_going() {
            self.halt_within(Some(STOP_TIMEOUT));
        }
    }
}
