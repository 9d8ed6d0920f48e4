//! Processes that are debugged together: the one that packets are about, and others, most of them
//! made by it.
//!
//! Stopping all means all of all processes: when one has something to report, the others are
//! halted, too, and what they have to report waits for its turn.

use crate::sys::Tid;
use crate::sys::signals;

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::wait_queue::WaitQueue;

/// The processes one client debugs.
#[derive(Default)]
pub(crate) struct Family {
    /// The one that packets are about; it may have ended.
    pub(crate) current: Option<Tracee>,
    others: Vec<Tracee>,
    /// The one that the client asked for last.
    asked_for: Option<Tid>,
    wait_queue: WaitQueue,
}

impl Family {
    /// What a process must be started with that is to be one of them.
    pub(crate) fn wait_queue(&self) -> WaitQueue {
        self.wait_queue.clone()
    }

    /// One more that the client asks for, the current one from now on.
    pub(crate) fn add(&mut self, tracee: Tracee) {
        self.asked_for = Some(tracee.process.pid());
        self.make_current(tracee);
    }

    fn make_current(&mut self, tracee: Tracee) {
        let former = self.current.replace(tracee);
        self.others.extend(former.filter(|p| !p.process.is_past()));
    }

    /// All, the current one first.
    pub(crate) fn members(&mut self) -> impl Iterator<Item = &mut Tracee> {
        self.current.iter_mut().chain(&mut self.others)
    }

    /// All, to look at.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Tracee> {
        self.current.iter().chain(&self.others)
    }

    /// A turn of the event loop ends: threads that had something to report stood no longer than
    /// that.
    pub(crate) fn turn_ends(&mut self, turn: (u64, u64)) {
        for tracee in self.members() {
            let halted = !tracee.process.is_going() && tracee.process.end().is_none();
            tracee.subscriptions.turn_ends(turn, halted);
        }
    }

    /// Threads that had something to report waited from one moment to the other for a client.
    pub(crate) fn were_held_up(&mut self, from: u64, to: u64) {
        for tracee in self.members() {
            tracee.subscriptions.were_held_up(from, to);
        }
    }

    /// Makes this the current one. Whether there is such a process.
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

    /// The process that this is a thread of.
    pub(crate) fn process_of(&mut self, tid: Tid) -> Option<Tid> {
        self.members()
            .find(|p| p.process.listed(tid))
            .map(|p| p.process.pid())
    }

    /// Takes a process out.
    pub(crate) fn remove(&mut self, pid: Tid) -> Option<Tracee> {
        if !self.select(pid) {
            return None;
        }
        std::mem::replace(&mut self.current, self.others.pop())
    }

    /// Whether any of them goes.
    pub(crate) fn is_going(&mut self) -> bool {
        self.members().any(|tracee| tracee.process.is_going())
    }

    /// Takes the reports that have come. If one of them is for the client, halts all; the current
    /// process is the one it is about.
    pub(crate) fn poll(&mut self) -> Option<Stop> {
        if self.current.is_none() {
            self.wait_queue.collect();
        }
        let news = self.first(|p| p.poll().map(|stop| (p.process.pid(), stop)));
        if let Some((pid, stop)) = news {
            self.hold_all_but(pid);
            return Some(stop);
        }
        // One may have taken reports that are for another that was asked before it.
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

    /// Stops what goes, for the client's sake. It is shown the process that it asked for last, not
    /// whichever had something to report that the client's user may not have been told.
    pub(crate) fn interrupt(&mut self) -> Option<Stop> {
        if let Some(pid) = self.asked_for {
            self.select(pid);
        }
        let (pid, stop) = self.first(|p| p.interrupt().map(|stop| (p.process.pid(), stop)))?;
        self.hold_all_but(pid);
        Some(stop)
    }

    /// The client's interrupt. If it is told something else now, or nothing goes, this is due until
    /// it is told, as a `SIGINT` waits in the kernel that gdbserver sends.
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

    /// The same in non-stop mode: one thread of all that run, or the next that is resumed, is told
    /// to have been interrupted.
    pub(crate) fn interrupt_one(&mut self) {
        let goes = self
            .processes()
            .position(|it: &Tracee| it.process.any_goes());
        if let Some(tracee) = self.members().nth(goes.unwrap_or(0)) {
            tracee.interrupt_one();
        }
    }

    /// An interrupt that is due to a process that stays where it is is another's that goes on. Not
    /// one's that only steps: that is how gdb gets threads past breakpoints.
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

    /// No client waits any more for interrupts that are due.
    pub(crate) fn forget_interrupts(&mut self) {
        for tracee in self.members() {
            tracee.interrupt_due = false;
        }
    }

    /// However often it has been asked for, an interrupt is told once.
    fn forget_if_told(&mut self, stop: Option<&Stop>) {
        if matches!(stop, Some(Stop::Thread(_, Cause::Interrupt))) {
            self.forget_interrupts();
        }
    }

    /// Resumes those that have a thread to be resumed; see [`Tracee::resume`].
    pub(crate) fn resume(&mut self, action: impl Fn(Tid, Option<Tid>) -> Action) -> Option<Stop> {
        let mut stopped = None;
        self.pass_on_interrupt(&action);
        for tracee in self.known() {
            let pid = tracee.process.pid();
            // One that has ended, or is about to, still has to say so.
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

    /// Those that the client has not been told of: it cannot mean them.
    pub(crate) fn unknown(&mut self) -> Vec<Tid> {
        self.members().flat_map(|tracee| tracee.unknown()).collect()
    }

    /// Those that it has been told of.
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

    /// Takes over the processes that members made, and what they planted in memory that is not
    /// theirs.
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

    /// Forgets those that have ended and been told of, but the current one, whose end may still be
    /// asked for.
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

    /// Lets one go.
    pub(crate) fn detach(&mut self, pid: Tid) -> bool {
        let unknown = self
            .select(pid)
            .then(|| self.current.as_mut().map(Tracee::unknown));
        for child in unknown.flatten().unwrap_or_default() {
            // The client does not know it, so it would never let it go.
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

    /// All of them, which are no family any more.
    pub(crate) fn dissolve(&mut self) -> impl Iterator<Item = Tracee> + use<> {
        self.take_over();
        let others = std::mem::take(&mut self.others);
        others.into_iter().chain(self.current.take())
    }
}
