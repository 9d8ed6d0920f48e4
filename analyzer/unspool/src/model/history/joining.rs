//! Joins and detaches: which thread a handle means, and what a join that returned tells of ends.
//!
//! Servers that do not report thread exits leave joins as the best witness: whoever goes on after
//! calling join has seen the other thread's end.

use super::History;
use crate::model::thread::ThreadIndex;

impl History<'_> {
    pub(super) fn join(&mut self, joiner: usize, handle: u64) {
        let threads = &self.threads;
        match self
            .handles
            .find(handle, |index| threads[index].joiner.is_none())
        {
            Some(index) => self.joined_by(index, joiner),
            None => self.handles.expect(handle).joiner = Some(joiner),
        }
    }

    pub(super) fn detach(&mut self, handle: u64) {
        let threads = &self.threads;
        match self
            .handles
            .find(handle, |index| threads[index].ended_ns.is_none())
        {
            Some(index) => self.threads[index].detached = true,
            None => self.handles.expect(handle).detached = true,
        }
    }

    pub(super) fn known_handle(&mut self, index: usize, handle: Option<u64>, sp: Option<u64>) {
        let waiting = self.handles.started(index, handle, sp);
        if let Some(joiner) = waiting.joiner {
            self.joined_by(index, joiner);
        }
        self.threads[index].detached |= waiting.detached;
    }

    /// A thread went on, or ended: the join it called last has returned, and so the joined thread is
    /// gone, and the one that joined last.
    pub(super) fn joins_returned(&mut self, index: usize, time_ns: u64) {
        let mut next = self.traces[index].joining.take();
        while let Some(joined) = next {
            if self.traces[joined].gone {
                break;
            }
            let tid = self.threads[joined].tid;
            if self.current.get(&tid) == Some(&joined) {
                self.current.remove(&tid);
            }
            self.gone(joined, time_ns, false);
            self.traces[joined].concluded = true;
            next = self.traces[joined].joining.take();
        }
    }

    fn joined_by(&mut self, index: usize, joiner: usize) {
        self.threads[index].joiner = Some(ThreadIndex(joiner));
        self.traces[joiner].joining = Some(index);
    }
}
