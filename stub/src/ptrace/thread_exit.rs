//! Which threads stop once more when they end.
//!
//! The kernel reports the end of each thread, but of the first thread only when all others have
//! ended, and the memory goes with the last. So the first thread stops once more when it ends
//! (`PTRACE_O_TRACEEXIT`), and when it has ended the others do. For others that stop would tell
//! nothing new, and a thread that joins them would wait for it.

use crate::sys::Tid;
use crate::sys::ptrace;

use super::process::Process;
use super::thread::{Motion, State};

impl Process {
    /// Has a stopped thread stop once more when it ends, if the stub would hear of its end too late
    /// otherwise.
    pub(crate) fn set_exit_stop(&mut self, tid: Tid) {
        let stops = tid == self.pid() || self.first_has_ended();
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if thread.stops_at_end == stops || thread.stopped().is_none() {
            return;
        }
        thread.stops_at_end = stops;
        // If it is dead, it will not stop any more, either.
        let _ = ptrace::set_options(tid, thread.options());
    }

    fn first_has_ended(&self) -> bool {
        let first = self.threads.get(&self.pid());
        first.is_none_or(|first| matches!(first.state, State::Exiting))
    }

    /// Lets a thread go that is past its last instruction. It is never held: an exec elsewhere may
    /// wait for its end.
    pub(crate) fn let_end(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.go(Motion::Continue, 0);
            thread.state = State::Exiting;
            thread.pending.clear();
        }
    }

    /// The first thread has ended alone: has the others stop at their ends.
    pub(crate) fn set_exit_stops(&mut self) {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            match &self.threads[&tid].state {
                State::Stopped(_) => self.set_exit_stop(tid),
                State::Running(running) => running.interrupt(),
                State::Exiting => {}
            }
        }
    }

    /// Whether a thread that is about to end does so by its own call, and its process goes on.
    pub(crate) fn ends_alone(&mut self, tid: Tid) -> bool {
        let general = self.stopped(tid).and_then(|stopped| stopped.general().ok());
        let call = general.and_then(crate::arch::system_call);
        call == Some(libc::SYS_exit as u64)
    }
}
