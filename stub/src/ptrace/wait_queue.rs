//! Reports that are not about the process that waited for them. They are about threads and children
//! whose creation the kernel has not reported yet, or about other debugged processes. waitpid(2)
//! returns reports of all of these to any caller.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::sys::Tid;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::rewind::wait_rewinding;

/// Reports that no process has claimed yet, oldest first. All processes that are debugged together
/// share one queue.
#[derive(Clone, Default)]
pub(crate) struct WaitQueue(Rc<RefCell<List>>);

#[derive(Default)]
struct List {
    reports: VecDeque<(Tid, Status)>,
    /// Threads to detach as soon as possible: they could not be stopped at the time.
    released: Vec<Tid>,
}

impl WaitQueue {
    /// The first report about this task.
    pub(crate) fn take(&self, tid: Tid) -> Option<Status> {
        self.take_first(|other| other == tid)
            .map(|(_, status)| status)
    }

    fn take_first(&self, mine: impl Fn(Tid) -> bool) -> Option<(Tid, Status)> {
        let mut list = self.0.borrow_mut();
        let index = list.reports.iter().position(|(tid, _)| mine(*tid))?;
        list.reports.remove(index)
    }

    /// True if no other process can claim a report.
    pub(crate) fn is_own(&self) -> bool {
        // The family and this process each hold a reference.
        Rc::strong_count(&self.0) <= 2
    }

    fn leave(&self, tid: Tid, status: Status) {
        let mut list = self.0.borrow_mut();
        if let Some(index) = list.released.iter().position(|other| *other == tid) {
            list.released.swap_remove(index);
            let signal = match status {
                Status::Signal(signal) => signal,
                _ => 0,
            };
            let _ = ptrace::detach(tid, signal);
        } else {
            list.reports.push_back((tid, status));
        }
    }

    /// Detaches a thread as soon as that is possible.
    pub(crate) fn release(&self, tid: Tid) {
        self.0.borrow_mut().released.push(tid);
        if let Some(status) = self.take(tid) {
            self.leave(tid, status);
        }
    }

    /// Keeps a thread that was to be detached. Returns false if it is not traced for that.
    pub(crate) fn keep(&self, tid: Tid) -> bool {
        let mut list = self.0.borrow_mut();
        let index = list.released.iter().position(|other| *other == tid);
        index
            .map(|index| list.released.swap_remove(index))
            .is_some()
    }

    /// True if any task is traced.
    pub(crate) fn has_tasks(&self) -> bool {
        match wait_rewinding(None, false) {
            Ok(Some((tid, status))) => self.leave(tid, status),
            Ok(None) => {}
            Err(_) => return false,
        }
        true
    }

    /// Reads all available reports.
    pub(crate) fn collect(&self) {
        while let Ok(Some((tid, status))) = wait_rewinding(None, false) {
            self.leave(tid, status);
        }
    }

    /// The next report about a task that this process `knows`, in the order in which reports were
    /// read. `None` if there is none now or, with `block`, if no traced task is left.
    ///
    /// The kernel prefers reports of the same threads again and again. So this reads all available
    /// reports before it returns one: a thread that stops repeatedly must not hide the others.
    pub(crate) fn next(
        &self,
        process: Tid,
        knows: &impl Fn(Tid) -> bool,
        block: bool,
    ) -> Option<(Tid, Status)> {
        if !self.has_any(knows) {
            self.collect();
        }
        loop {
            if let Some(report) = self.take_first(knows) {
                return Some(report);
            }
            self.let_strangers_end(process, knows);
            if !block {
                return None;
            }
            let (tid, status) = wait_rewinding(None, true).ok().flatten()?;
            self.leave(tid, status);
        }
    }

    /// Lets threads of `process` end that were killed before the kernel reported their creation.
    /// The process cannot end before they do.
    fn let_strangers_end(&self, process: Tid, knows: &impl Fn(Tid) -> bool) {
        let is_stranger = |tid: Tid| !knows(tid) && ptrace::is_thread_of(process, tid);
        self.0.borrow_mut().reports.retain(|(tid, status)| {
            let ends = *status == Status::Exiting && is_stranger(*tid);
            if ends {
                let _ = ptrace::cont(*tid, 0);
            }
            !ends
        });
    }

    /// Waits for the next report about this task only.
    pub(crate) fn wait_for(&self, tid: Tid) -> Option<Status> {
        if let Some(status) = self.take(tid) {
            return Some(status);
        }
        loop {
            if let Some((_, status)) = wait_rewinding(Some(tid), false).ok()? {
                return Some(status);
            }
            // The kernel reports the end of a process's first thread only to a tracer that has read
            // the ends of all other threads.
            match wait_rewinding(None, true).ok()?? {
                (known, status) if known == tid => return Some(status),
                (other, status) => self.leave(other, status),
            }
        }
    }

    /// The next report about this task, if one is available.
    pub(crate) fn now(&self, tid: Tid) -> Option<Status> {
        let report = || wait_rewinding(Some(tid), false).ok().flatten();
        self.take(tid)
            .or_else(|| report().map(|(_, status)| status))
    }

    /// True if there is a report about a task that `knows` accepts.
    pub(crate) fn has_any(&self, knows: impl Fn(Tid) -> bool) -> bool {
        let list = self.0.borrow();
        list.reports.iter().any(|(tid, _)| knows(*tid))
    }

    /// Takes all reports about tasks that are not known.
    pub(crate) fn take_others(&self, known: impl Fn(Tid) -> bool) -> VecDeque<(Tid, Status)> {
        let mut list = self.0.borrow_mut();
        let reports = std::mem::take(&mut list.reports);
        let (kept, taken) = reports.into_iter().partition(|(tid, _)| known(*tid));
        list.reports = kept;
        taken
    }

    /// Drops reports about ended tasks that no process knew, because the kernel will reuse their
    /// ids.
    pub(crate) fn forget_ended(&self, known: impl Fn(Tid) -> bool) {
        let mut list = self.0.borrow_mut();
        let ended = |(_, status): &&(Tid, Status)| status.is_end();
        let gone = list.reports.iter().filter(ended).map(|(tid, _)| *tid);
        let gone: Vec<Tid> = gone.filter(|tid| !known(*tid)).collect();
        list.reports.retain(|(tid, _)| !gone.contains(tid));
    }
}
