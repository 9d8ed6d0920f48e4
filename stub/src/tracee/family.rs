//! The processes that one client debugs. Packets refer to the current process. Most of the others
//! are its children.
//!
//! Stopping means that all threads of all processes stop. When one process has something to report,
//! the others are halted too. Their own reports are kept for later.

use crate::sys::Tid;
use crate::sys::signals;

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::wait_queue::WaitQueue;

/// The processes one client debugs.
#[derive(Default)]
pub(crate) struct Family {
    /// The process that packets are about. It may have ended.
    pub(crate) current: Option<Tracee>,
    others: Vec<Tracee>,
    /// The process that the client requested last.
    asked_for: Option<Tid>,
    wait_queue: WaitQueue,
}

impl Family {
    /// The wait queue that a new process must share to join.
    pub(crate) fn wait_queue(&self) -> WaitQueue {
        self.wait_queue.clone()
    }

    /// Adds a process that the client has requested, and makes it the current one.
    pub(crate) fn add(&mut self, tracee: Tracee) {
        self.asked_for = Some(tracee.process.pid());
        self.make_current(tracee);
    }

    fn make_current(&mut self, tracee: Tracee) {
        let former = self.current.replace(tracee);
        self.others.extend(former.filter(|p| !p.process.is_past()));
    }

    /// All processes, the current one first.
    pub(crate) fn members(&mut self) -> impl Iterator<Item = &mut Tracee> {
        self.current.iter_mut().chain(&mut self.others)
    }

    /// All processes, read-only.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Tracee> {
        self.current.iter().chain(&self.others)
    }

    /// Ends an iteration of the event loop, which had this start and end. Threads with something to
    /// report were stopped for no longer.
    pub(crate) fn turn_ends(&mut self, turn: (u64, u64)) {
        for tracee in self.members() {
            let halted = !tracee.process.is_going() && tracee.process.end().is_none();
            tracee.subscriptions.turn_ends(turn, halted);
        }
    }

    /// Makes this process the current one. False if there is no such process.
    pub(crate) fn select(&mut self, pid: Tid) -> bool {
        if self
            .current
            .as_ref()
            .is_some_and(|p| p.process.pid() == pid)
        {
            return true;
        }
        let Some(index) = self.others.iter().position(|p| p.process.pid() == pid) else {
            return false;
        };
        let chosen = self.others.swap_remove(index);
        self.make_current(chosen);
        true
    }

    /// The process that this thread belongs to.
    pub(crate) fn process_of(&mut self, tid: Tid) -> Option<Tid> {
        self.members()
            .find(|p| p.process.listed(tid))
            .map(|p| p.process.pid())
    }

    /// Removes a process.
    pub(crate) fn remove(&mut self, pid: Tid) -> Option<Tracee> {
        if !self.select(pid) {
            return None;
        }
        std::mem::replace(&mut self.current, self.others.pop())
    }

    /// True if any process is going.
    pub(crate) fn is_going(&mut self) -> bool {
        self.members().any(|tracee| tracee.process.is_going())
    }

    /// Handles the kernel's reports. If one of them is for the client, halts all processes and
    /// makes the reporting one current.
    pub(crate) fn poll(&mut self) -> Option<Stop> {
        if self.current.is_none() {
            self.wait_queue.collect();
        }
        let news = self.first(|p| p.poll().map(|stop| (p.process.pid(), stop)));
        if let Some((pid, stop)) = news {
            self.hold_all_but(pid);
            return Some(stop);
        }
        // A process may have read reports of another one that was polled before it.
        if self.members().any(|tracee| tracee.process.has_reports()) {
            signals::raise_again();
        }
        let members = self.current.iter().chain(&self.others);
        self.wait_queue
            .forget_ended(|tid| members.clone().any(|tracee| tracee.process.knows(tid)));
        None
    }

    fn first<T>(&mut self, ask: impl FnMut(&mut Tracee) -> Option<T>) -> Option<T> {
        let found = self.members().find_map(ask);
        self.take_over();
        found
    }

    /// Halts everything for the client. Shows the process that the client requested last, because
    /// the user may not know the one that happens to have something to report.
    pub(crate) fn interrupt(&mut self) -> Option<Stop> {
        if let Some(pid) = self.asked_for {
            self.select(pid);
        }
        let (pid, stop) = self.first(|p| p.interrupt().map(|stop| (p.process.pid(), stop)))?;
        self.hold_all_but(pid);
        Some(stop)
    }

    /// Handles the client's interrupt. If nothing is going or the stop reports something else, the
    /// interrupt stays due until a stop reports it. In gdbserver, the `SIGINT` that it sends stays
    /// pending in the kernel likewise.
    pub(crate) fn interrupt_for_client(&mut self) -> Option<Stop> {
        let stop = if self.is_going() {
            self.interrupt()
        } else {
            None
        };
        let pid = self.asked_for;
        let asked_for = self.members().position(|p| Some(p.process.pid()) == pid);
        if let Some(tracee) = self.members().nth(asked_for.unwrap_or(0)) {
            tracee.interrupt_due = true;
        }
        self.forget_if_told(stop.as_ref());
        stop
    }

    /// Handles an interrupt in non-stop mode: one running thread reports it, or else the next
    /// thread that is resumed.
    pub(crate) fn interrupt_one(&mut self) {
        let goes = self
            .processes()
            .position(|it: &Tracee| it.process.any_goes());
        if let Some(tracee) = self.members().nth(goes.unwrap_or(0)) {
            tracee.interrupt_one();
        }
    }

    /// If the process with a due interrupt stays stopped, moves the interrupt to one that
    /// continues. A process that only steps does not get it, because gdb uses steps to get threads
    /// past breakpoints.
    fn pass_on_interrupt(&mut self, action: &impl Fn(Tid, Option<Tid>) -> Action) {
        let goes = |tracee: &Tracee, how: fn(Action) -> bool| {
            let pid = tracee.process.pid();
            tracee.process.tids().any(|tid| how(action(pid, Some(tid))))
        };
        let due = |tracee: &Tracee| tracee.interrupt_due;
        let stays = |tracee: &Tracee| !goes(tracee, |action| action != Action::Hold);
        if !self.processes().any(due) || self.processes().any(|p| due(p) && !stays(p)) {
            return;
        }
        let goes_on = |tracee: &&mut Tracee| goes(tracee, |a| matches!(a, Action::Continue(_)));
        if let Some(tracee) = self.known().find(goes_on) {
            tracee.interrupt_due = true;
        }
    }

    /// Forgets due interrupts, because no client waits for them any more.
    pub(crate) fn forget_interrupts(&mut self) {
        for tracee in self.members() {
            tracee.interrupt_due = false;
        }
    }

    /// Forgets all due interrupts once a stop has reported one: several requests get one report.
    fn forget_if_told(&mut self, stop: Option<&Stop>) {
        if matches!(stop, Some(Stop::Thread(_, Cause::Interrupt))) {
            self.forget_interrupts();
        }
    }

    /// Resumes the processes with a thread to be resumed; see [`Tracee::resume`].
    pub(crate) fn resume(&mut self, action: impl Fn(Tid, Option<Tid>) -> Action) -> Option<Stop> {
        let mut stopped = None;
        self.pass_on_interrupt(&action);
        for tracee in self.known() {
            let pid = tracee.process.pid();
            // A process that has ended, or is about to, still has to report it.
            let ends = tracee.process.tids().next().is_none();
            let held = |tid| action(pid, Some(tid)) == Action::Hold;
            if !ends && tracee.process.tids().all(held) {
                continue;
            }
            let stop = tracee.resume(|tid| action(pid, Some(tid)), action(pid, None));
            if let Some(stop) = stop {
                stopped = Some((pid, stop));
                break;
            }
        }
        self.take_over();
        let (pid, stop) = stopped?;
        self.hold_all_but(pid);
        self.forget_if_told(Some(&stop));
        Some(stop)
    }

    /// The processes that the client does not know of yet, so that its packets cannot mean them.
    pub(crate) fn unknown(&mut self) -> Vec<Tid> {
        self.members().flat_map(|tracee| tracee.unknown()).collect()
    }

    /// The processes that the client knows of.
    pub(crate) fn known(&mut self) -> impl Iterator<Item = &mut Tracee> {
        let unknown = self.unknown();
        self.members()
            .filter(move |tracee| !unknown.contains(&tracee.process.pid()))
    }

    fn hold_all_but(&mut self, pid: Tid) {
        self.select(pid);
        for tracee in &mut self.others {
            tracee.halt_for_another();
        }
        self.take_over();
    }

    /// Takes over the processes that members created, and the breakpoints that they left in
    /// borrowed memory.
    pub(crate) fn take_over(&mut self) {
        let made: Vec<Tracee> = self
            .members()
            .flat_map(|p| std::mem::take(&mut p.forks.made))
            .collect();
        self.others.extend(made);
        let left: Vec<_> = self
            .members()
            .filter_map(|p| p.forks.left_behind.take())
            .collect();
        for (owner, memory, mut planted) in left {
            match self.members().find(|tracee| tracee.process.pid() == owner) {
                Some(owner) => owner.breakpoints.inherit(planted, &owner.process.memory),
                None => planted.remove_all(&memory),
            }
        }
    }

    /// Forgets processes that have ended and whose end the client knows. Keeps the current one
    /// unless there is another, because the client may still ask for its end.
    pub(crate) fn forget_ended(&mut self) {
        self.others.retain(|tracee| !tracee.process.is_past());
        if self
            .current
            .as_ref()
            .is_none_or(|it: &Tracee| it.process.is_past())
            && let Some(other) = self.others.pop()
        {
            self.current = Some(other);
        }
    }

    /// Detaches from one process. False if there is no such process.
    pub(crate) fn detach(&mut self, pid: Tid) -> bool {
        let unknown = self
            .select(pid)
            .then(|| self.current.as_mut().map(Tracee::unknown));
        for child in unknown.flatten().unwrap_or_default() {
            // The client does not know this child, so it would never detach from it.
            self.detach(child);
        }
        let Some(tracee) = self.remove(pid) else {
            return false;
        };
        match self.members().find(|member| member.lends_to(pid)) {
            Some(parent) => parent.take_back(tracee),
            None => tracee.detach(),
        }
        true
    }

    /// Takes all processes out.
    pub(crate) fn dissolve(&mut self) -> impl Iterator<Item = Tracee> + use<> {
        self.take_over();
        let others = std::mem::take(&mut self.others);
        others.into_iter().chain(self.current.take())
    }
}
