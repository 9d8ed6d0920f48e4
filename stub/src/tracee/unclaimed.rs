//! Reports that are not about the process that waited for them: of threads and children whose maker has not reported
//! them yet, and of other processes that are debugged, too. waitpid(2) hands out all of them to whoever asks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::sys::Tid;
use crate::sys::ptrace;
use crate::sys::wait::{Status, wait_rewinding};

use super::process::Process;

/// What nobody has claimed yet, in the order in which it came; one list for all processes that are debugged together.
#[derive(Clone, Default)]
pub(crate) struct Unclaimed(Rc<RefCell<List>>);

#[derive(Default)]
struct List {
    reports: VecDeque<(Tid, Status)>,
    /// Threads that were to be let go when they could not be: inside vfork(2).
    released: Vec<Tid>,
}

impl Unclaimed {
    /// The first report about this task.
    pub(super) fn take(&self, tid: Tid) -> Option<Status> {
        self.take_first(|other| other == tid)
            .map(|(_, status)| status)
    }

    fn take_first(&self, mine: impl Fn(Tid) -> bool) -> Option<(Tid, Status)> {
        let mut list = self.0.borrow_mut();
        let index = list.reports.iter().position(|(tid, _)| mine(*tid))?;
        list.reports.remove(index)
    }

    /// Nobody else will claim anything.
    pub(super) fn is_own(&self) -> bool {
        // The family holds it, and this process.
        Rc::strong_count(&self.0) <= 2
    }

    fn leave(&self, tid: Tid, status: Status) {
        let mut list = self.0.borrow_mut();
        if let Some(index) = list.released.iter().position(|other| *other == tid) {
            list.released.swap_remove(index);
            let _ = ptrace::detach(tid, 0);
        } else {
            list.reports.push_back((tid, status));
        }
    }

    /// Lets a thread go as soon as it can be.
    pub(super) fn release(&self, tid: Tid) {
        self.0.borrow_mut().released.push(tid);
        if let Some(status) = self.take(tid) {
            self.leave(tid, status);
        }
    }

    /// Takes what has come.
    pub(super) fn collect(&self) {
        while let Ok(Some((tid, status))) = wait_rewinding(None, false) {
            self.leave(tid, status);
        }
    }

    /// Waits for a report about this task.
    fn wait_for(&self, tid: Tid) -> Option<Status> {
        loop {
            if let Some((_, status)) = wait_rewinding(Some(tid), false).ok()? {
                return Some(status);
            }
            // Not for this one alone: of the end of a process's first thread the kernel tells only those who have read that of all others.
            match wait_rewinding(None, true).ok()?? {
                (known, status) if known == tid => return Some(status),
                (other, status) => self.leave(other, status),
            }
        }
    }

    /// All that is about tasks that are not known.
    pub(super) fn take_others(&self, known: impl Fn(Tid) -> bool) -> VecDeque<(Tid, Status)> {
        let mut list = self.0.borrow_mut();
        let reports = std::mem::take(&mut list.reports);
        let (kept, taken) = reports.into_iter().partition(|(tid, _)| known(*tid));
        list.reports = kept;
        taken
    }

    /// Drops what is about tasks that have ended without anybody having known them: their ids will be others'.
    pub(super) fn forget_ended(&self, known: impl Fn(Tid) -> bool) {
        let mut list = self.0.borrow_mut();
        let ended =
            |(_, status): &&(Tid, Status)| matches!(status, Status::Exited(_) | Status::Killed(_));
        let gone = list.reports.iter().filter(ended).map(|(tid, _)| *tid);
        let gone: Vec<Tid> = gone.filter(|tid| !known(*tid)).collect();
        list.reports.retain(|(tid, _)| !gone.contains(tid));
    }
}

impl Process {
    /// The next report about a thread or child of this process, in the order in which all that are there came to be
    /// read: the kernel always gives those of the same threads first, and a thread that stops again and again would be
    /// all that we hear of. `None`: there is none now, or, if it may `block`, nothing is traced any more.
    pub(super) fn next_report(&mut self, block: bool) -> Option<(Tid, Status)> {
        if !self.has_reports() {
            self.unclaimed.collect();
        }
        loop {
            if let Some(report) = self.unclaimed.take_first(|tid| self.knows(tid)) {
                return Some(report);
            }
            self.let_strangers_end();
            if !block {
                return None;
            }
            let (tid, status) = wait_rewinding(None, true).ok().flatten()?;
            self.unclaimed.leave(tid, status);
        }
    }

    /// A thread that is killed before its maker has reported it stands at its end until it is told to go on; its process
    /// cannot end before.
    fn let_strangers_end(&self) {
        let stranger = |tid: Tid| !self.knows(tid) && ptrace::is_thread_of(self.pid(), tid);
        let mut list = self.unclaimed.0.borrow_mut();
        list.reports.retain(|(tid, status)| {
            let ends = *status == Status::Exiting && stranger(*tid);
            if ends {
                let _ = ptrace::cont(*tid, 0);
            }
            !ends
        });
    }

    /// The next report about this thread alone, whenever it comes. Those of others are kept.
    pub(super) fn report_of(&self, tid: Tid) -> Option<Status> {
        let read = self.unclaimed.take(tid);
        read.or_else(|| self.unclaimed.wait_for(tid))
    }

    /// That, if there is one now.
    pub(super) fn report_now(&self, tid: Tid) -> Option<Status> {
        let read = self.unclaimed.take(tid);
        let report = || wait_rewinding(Some(tid), false).ok().flatten();
        read.or_else(|| report().map(|(_, status)| status))
    }

    /// Whether there are reports about it that it has not seen.
    pub(super) fn has_reports(&self) -> bool {
        let list = self.unclaimed.0.borrow();
        list.reports.iter().any(|(tid, _)| self.knows(*tid))
    }

    pub(super) fn knows(&self, tid: Tid) -> bool {
        self.threads.contains_key(&tid) || self.children.contains_key(&tid)
    }
}
