//! Which threads stop once more before they end.
//!
//! The kernel reports the end of each thread. It reports the end of the first thread only when all
//! others have ended, and by then the memory is gone. So the first thread stops once more before it
//! ends (`PTRACE_O_TRACEEXIT`), and after its end the others do. Until then, such a stop of the
//! others would report nothing new, and would delay threads that join them.

use crate::sys::Tid;
use crate::sys::ptrace;

use super::process::Process;
use super::thread::{Motion, State};

impl Process {
    /// Makes a stopped thread stop once more before it ends, if the kernel's report of its end
    /// would come too late.
    pub(crate) fn set_exit_stop(&mut self, tid: Tid) {
        let stops = tid == self.pid() || self.first_has_ended();
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if thread.stops_at_end == stops || thread.stopped().is_none() {
            return;
        }
        thread.stops_at_end = stops;
        // A dead thread does not stop any more.
        let _ = ptrace::set_options(tid, thread.options());
    }

    fn first_has_ended(&self) -> bool {
        let first = self.threads.get(&self.pid());
        first.is_none_or(|first| matches!(first.state, State::Exiting))
    }

    /// Resumes a thread that has executed its last instruction. The stub never holds such a thread,
    /// because an exec in another thread may wait for its end.
    pub(crate) fn let_end(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.go(Motion::Continue, 0);
            thread.state = State::Exiting;
            thread.pending.clear();
        }
    }

    /// Makes all other threads stop before they end, after the first thread has ended alone.
    pub(crate) fn set_exit_stops(&mut self) {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            match &self.threads[&tid].state {
                State::Stopped(_) => self.set_exit_stop(tid),
                State::Running(_) => _ = self.interrupt(tid),
                State::Exiting => {}
            }
        }
    }

    /// True if an ending thread calls exit(2) itself and its process continues.
    pub(crate) fn ends_alone(&mut self, tid: Tid) -> bool {
        let general = self.stopped(tid).and_then(|stopped| stopped.general().ok());
        let call = general.and_then(crate::arch::system_call);
        call == Some(libc::SYS_exit as u64)
    }
}
