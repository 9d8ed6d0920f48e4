//! The kernel's reports about this process, out of those about all that is traced.

use crate::sys::Tid;
use crate::sys::wait::Status;

use super::Tracee;

impl Tracee {
    /// The next report about a thread or child of this process; see [`WaitQueue::next`].
    ///
    /// [`WaitQueue::next`]: crate::ptrace::wait_queue::WaitQueue::next
    pub(super) fn next_report(&mut self, block: bool) -> Option<(Tid, Status)> {
        let knows = |tid| self.knows(tid);
        self.wait_queue.next(self.pid(), &knows, block)
    }

    /// Waits for the next report about this thread. Keeps those about others.
    pub(super) fn report_of(&self, tid: Tid) -> Option<Status> {
        self.wait_queue.wait_for(tid)
    }

    /// The next report about this thread, if there is one now.
    pub(super) fn report_now(&self, tid: Tid) -> Option<Status> {
        self.wait_queue.now(tid)
    }

    /// Whether there are reports about it that it has not handled.
    pub(super) fn has_reports(&self) -> bool {
        self.wait_queue.has_any(|tid| self.knows(tid))
    }

    /// Whether this is one of its threads or children.
    pub(super) fn knows(&self, tid: Tid) -> bool {
        self.threads.contains_key(&tid) || self.children.contains_key(&tid)
    }
}
