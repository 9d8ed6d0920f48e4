//! Makes system calls in a thread of the program.
//!
//! The thread executes one system call instruction and then gets its registers back. If it was
//! interrupted in a system call, the registers include that call's restart state, so the kernel
//! restarts the call. The kernel does that only for a thread that stops on its way back to user
//! mode, after the stop at the end of a call.

use crate::arch::call;

use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::wait::Status;
use crate::sys::{Tid, status_field};

use super::process::Process;
use super::thread::At;

impl Process {
    /// True if the program has no seccomp filter.
    pub(crate) fn calls_freely(&self) -> bool {
        let status = self.read_proc("status");
        let filter = status_field(&String::from_utf8_lossy(&status), "Seccomp");
        filter.is_none_or(|mode: String| mode == "0")
    }

    /// Avoids a system call that the program's seccomp filter may not allow. The kernel resumes an
    /// interrupted sleep with `restart_syscall`, which programs do not list among their own calls.
    pub(super) fn avoid_restart_call(&mut self, tid: Tid) {
        let stopped = self.stopped(tid);
        let changed =
            stopped.and_then(|stopped| call::restarted_as_itself(stopped.general().ok()?));
        if let Some(general) = changed
            && !self.calls_freely()
            && let Some(stopped) = self.stopped(tid)
        {
            let _ = stopped.set_general(&general);
        }
    }

    /// Makes the kernel repeat a call that it ends with `EINTR` only because of this stop, which is
    /// on its way back to user mode. After other stops the kernel shows the program the result.
    pub(super) fn repeat_call(&mut self, tid: Tid) {
        if let Some(stopped) = self.stopped(tid)
            && let Ok(general) = stopped.general()
            && let Some(changed) = call::repeated_after_stop(general)
            && ptrace::signal_info(tid).is_ok_and(|info| info.code() == ptrace::INTERRUPTED)
            && let Some(stopped) = self.stopped(tid)
        {
            let _ = stopped.set_general(&changed);
        }
    }

    /// Finds a thread that can make a system call.
    pub(crate) fn find_caller(&mut self) -> Option<Tid> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        tids.into_iter().find(|tid| self.can_call(*tid))
    }

    /// Takes a thread from the end of a system call to a stop as if it had been interrupted, in
    /// which it shows this signal. Returns any other report: the thread is being killed, or its
    /// process stopped.
    #[must_use]
    pub(crate) fn end_call(&mut self, tid: Tid, shown: Option<&SignalInfo>) -> Option<Status> {
        ptrace::interrupt(tid).ok()?;
        self.stop_again(tid, shown)
    }

    /// True if the registers are the thread's complete state: it is about to take a signal, or was
    /// interrupted.
    fn can_call(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        if thread.after_call.is_some() || thread.in_call {
            return false;
        }
        let step_reset = thread.step_reset;
        let Some(stopped) = thread.stopped() else {
            return false;
        };
        let all = match stopped.at() {
            At::Signal => true,
            At::Event => {
                let interrupted = |info: ptrace::SignalInfo| info.code() == ptrace::INTERRUPTED;
                step_reset || ptrace::signal_info(tid).is_ok_and(interrupted)
            }
            _ => false,
        };
        let (Ok(pc), Ok(general)) = (stopped.pc(), stopped.general()) else {
            return false;
        };
        let mut code = vec![0; call::LENGTH as usize];
        all && self.memory.read(pc, &mut code).is_ok() && call::may_precede(&code, general)
    }
}
