//! Looking at threads that run: each is stopped for as long as it takes, by the kernel's interrupt, and nobody is told.

use crate::sys::Tid;

use super::process::Process;
use super::thread::State;

/// Threads that ran and were stopped for a look.
#[must_use]
pub(crate) struct Interrupted {
    tids: Vec<Tid>,
    halting: bool,
}

impl Process {
    /// Stops those of the threads that run. One that cannot be stopped now (it has ended, or waits in vfork(2) for its child)
    /// is not. [`looked`](Self::looked) is to follow.
    pub(crate) fn stop_for_a_look(&mut self, tids: &[Tid]) -> Interrupted {
        let ran: Vec<Tid> = tids
            .iter()
            .copied()
            .filter(|tid| self.ask_to_stop(*tid))
            .collect();
        // What else is reported meanwhile must not set them going.
        let halting = std::mem::replace(&mut self.halting, true);
        for tid in &ran {
            while self.is_running(*tid) {
                match self.report_of(*tid) {
                    Some(status) => self.handle(*tid, status),
                    None => break,
                }
            }
        }
        Interrupted { tids: ran, halting }
    }

    /// Lets those go on that ran; unless one of them had something to report, for which all are about to be halted.
    pub(crate) fn looked(&mut self, interrupted: Interrupted) {
        self.halting = interrupted.halting;
        if self.going && !self.halting && (self.non_stop || !self.eventful) {
            for tid in interrupted.tids {
                self.start_one(tid);
            }
        }
    }

    fn is_running(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| matches!(thread.state, State::Running(_)))
    }

    fn ask_to_stop(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        match thread.map(|thread| (&thread.state, thread.vfork_child)) {
            Some((State::Running(running), None)) => {
                running.interrupt();
                true
            }
            _ => false,
        }
    }
}
