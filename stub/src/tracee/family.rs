//! Processes that are debugged together: the one that packets are about, and others, most of them made by it.
//!
//! Stopping all means all of all processes: when one has something to report, the others are halted, too, and what they have
//! to report waits for its turn.

use crate::sys::Tid;
use crate::sys::memory::Memory;
use crate::sys::signals;
use crate::sys::wait::Status;

use super::Tracee;
use super::children::clean;
use crate::ptrace::action::Action;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{At, Pending, Thread};
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
    pub(crate) fn add(&mut self, process: Tracee) {
        self.asked_for = Some(process.pid());
        self.make_current(process);
    }

    fn make_current(&mut self, process: Tracee) {
        let former = self.current.replace(process);
        self.others.extend(former.filter(|p| !p.is_past()));
    }

    /// All, the current one first.
    pub(crate) fn members(&mut self) -> impl Iterator<Item = &mut Tracee> {
        self.current.iter_mut().chain(&mut self.others)
    }

    /// All, to look at.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Tracee> {
        self.current.iter().chain(&self.others)
    }

    /// A turn of the event loop ends: threads that had something to report stood no longer than that.
    pub(crate) fn turn_ends(&mut self, turn: (u64, u64)) {
        for process in self.members() {
            process.turn_ends(turn);
        }
    }

    /// Threads that had something to report waited from one moment to the other for a client.
    pub(crate) fn were_held_up(&mut self, from: u64, to: u64) {
        for process in self.members() {
            process.was_held_up(from, to);
        }
    }

    /// Makes this the current one. Whether there is such a process.
    pub(crate) fn select(&mut self, pid: Tid) -> bool {
        if self.current.as_ref().is_some_and(|p| p.pid() == pid) {
            return true;
        }
        let Some(index) = self.others.iter().position(|p| p.pid() == pid) else {
            return false;
        };
        let chosen = self.others.swap_remove(index);
        self.make_current(chosen);
        true
    }

    /// The process that this is a thread of.
    pub(crate) fn process_of(&mut self, tid: Tid) -> Option<Tid> {
        self.members().find(|p| p.listed(tid)).map(|p| p.pid())
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
        self.members().any(|process| process.is_going())
    }

    /// Takes the reports that have come. If one of them is for the client, halts all; the current process is the one
    /// it is about.
    pub(crate) fn poll(&mut self) -> Option<Stop> {
        if self.current.is_none() {
            self.wait_queue.collect();
        }
        let news = self.first(|p| p.poll().map(|stop| (p.pid(), stop)));
        if let Some((pid, stop)) = news {
            self.hold_all_but(pid);
            return Some(stop);
        }
        // One may have taken reports that are for another that was asked before it.
        if self.members().any(|process| process.has_reports()) {
            signals::raise_again();
        }
        let members = self.current.iter().chain(&self.others);
        self.wait_queue
            .forget_ended(|tid| members.clone().any(|process| process.knows(tid)));
        None
    }

    fn first<T>(&mut self, ask: impl FnMut(&mut Tracee) -> Option<T>) -> Option<T> {
        let found = self.members().find_map(ask);
        self.take_over();
        found
    }

    /// Stops what goes, for the client's sake. It is shown the process that it asked for last, not whichever had something to
    /// report that the client's user may not have been told.
    pub(crate) fn interrupt(&mut self) -> Option<Stop> {
        if let Some(pid) = self.asked_for {
            self.select(pid);
        }
        let (pid, stop) = self.first(|p| p.interrupt().map(|stop| (p.pid(), stop)))?;
        self.hold_all_but(pid);
        Some(stop)
    }

    /// The client's interrupt. If it is told something else now, or nothing goes, this is due until it is told, as a `SIGINT` waits in
    /// the kernel that gdbserver sends.
    pub(crate) fn interrupt_for_client(&mut self) -> Option<Stop> {
        let stop = if self.is_going() {
            self.interrupt()
        } else {
            None
        };
        let pid = self.asked_for;
        let asked_for = self.members().position(|p| Some(p.pid()) == pid);
        if let Some(process) = self.members().nth(asked_for.unwrap_or(0)) {
            process.interrupt_due = true;
        }
        self.forget_if_told(stop.as_ref());
        stop
    }

    /// The same in non-stop mode: one thread of all that run, or the next that is resumed, is told to have been interrupted.
    pub(crate) fn interrupt_one(&mut self) {
        let goes = self.processes().position(Tracee::any_goes);
        if let Some(process) = self.members().nth(goes.unwrap_or(0)) {
            process.interrupt_one();
        }
    }

    /// An interrupt that is due to a process that stays where it is is another's that goes on. Not one's that only steps: that is how
    /// gdb gets threads past breakpoints.
    fn pass_on_interrupt(&mut self, action: &impl Fn(Tid, Option<Tid>) -> Action) {
        let goes = |process: &Tracee, how: fn(Action) -> bool| {
            let pid = process.pid();
            process.threads().any(|tid| how(action(pid, Some(tid))))
        };
        let due = |process: &Tracee| process.interrupt_due;
        let stays = |process: &Tracee| !goes(process, |action| action != Action::Hold);
        if !self.processes().any(due) || self.processes().any(|p| due(p) && !stays(p)) {
            return;
        }
        let goes_on = |process: &&mut Tracee| goes(process, |a| matches!(a, Action::Continue(_)));
        if let Some(process) = self.known().find(goes_on) {
            process.interrupt_due = true;
        }
    }

    /// Nobody waits any more for interrupts that are due.
    pub(crate) fn forget_interrupts(&mut self) {
        for process in self.members() {
            process.interrupt_due = false;
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
        for process in self.known() {
            let pid = process.pid();
            // One that has ended, or is about to, still has to say so.
            let ends = process.threads().next().is_none();
            let held = |tid| action(pid, Some(tid)) == Action::Hold;
            if !ends && process.threads().all(held) {
                continue;
            }
            let stop = process.resume(|tid| action(pid, Some(tid)), action(pid, None));
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
        self.members()
            .flat_map(|process| process.unknown())
            .collect()
    }

    /// Those that it has been told of.
    pub(crate) fn known(&mut self) -> impl Iterator<Item = &mut Tracee> {
        let unknown = self.unknown();
        self.members()
            .filter(move |process| !unknown.contains(&process.pid()))
    }

    fn hold_all_but(&mut self, pid: Tid) {
        self.select(pid);
        for process in &mut self.others {
            process.pause();
        }
        self.take_over();
    }

    /// Takes over the processes that members made, and what they planted in memory that is not theirs.
    pub(crate) fn take_over(&mut self) {
        let made: Vec<Tracee> = self
            .members()
            .flat_map(|p| std::mem::take(&mut p.made))
            .collect();
        self.others.extend(made);
        let left: Vec<_> = self
            .members()
            .filter_map(|p| p.left_behind.take())
            .collect();
        for (owner, memory, mut planted) in left {
            match self.members().find(|process| process.pid() == owner) {
                Some(owner) => owner.breakpoints.inherit(planted, &owner.memory),
                None => planted.remove_all(&memory),
            }
        }
    }

    /// Forgets those that have ended and been told of, but the current one, whose end may still be asked for.
    pub(crate) fn forget_ended(&mut self) {
        self.others.retain(|process| !process.is_past());
        if self.current.as_ref().is_none_or(Tracee::is_past)
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
            // Nobody else would ever let it go.
            self.detach(child);
        }
        let Some(process) = self.remove(pid) else {
            return false;
        };
        match self.members().find(|member| member.lends_to(pid)) {
            Some(parent) => parent.take_back(process),
            None => process.detach(),
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

impl Tracee {
    /// Stops a going process for another's sake. What there is to be reported remains.
    fn pause(&mut self) {
        if self.going && !self.non_stop {
            self.halt();
            self.going = false;
        }
    }

    /// Makes a process to be debugged of a child, if the client wants that.
    pub(super) fn make_process(&mut self, parent: Tid, new: Tid, how: Status) -> bool {
        let (wanted, shared) = match how {
            Status::Fork => (self.stop_policy.forks, false),
            // Tracepoints' slots in a memory can belong to one process only.
            Status::VFork => (
                self.stop_policy.vforks
                    && !self.breakpoints.has_probes()
                    && self.jump_pads.is_empty(),
                true,
            ),
            _ => (false, false),
        };
        if !wanted {
            return false;
        }
        let first = self.report_of(new);
        let Ok(memory) = Memory::open(new) else {
            return false;
        };
        let mut process = Tracee::new(new, self.attached, memory, self.wait_queue.clone());
        process.stop_policy = self.stop_policy.clone();
        process.threads.insert(new, Thread::new(new, Action::Hold));
        if let Some(Status::Exited(_) | Status::Killed(_)) | None = first {
            return false;
        }
        process.mark_stopped(new, At::Event);
        process.set_exit_stop(new);
        process.resumed = self.resumed;
        process.non_stop = self.non_stop;
        process.going = self.non_stop;
        process.stand(new);
        if shared {
            process.borrowed = Memory::open(self.pid()).ok().map(|own| (self.pid(), own));
            process.breakpoints = self.breakpoints.of_the_client();
        } else {
            clean(new, &self.patches());
            process.breakpoints = self.breakpoints.planted_anew(&process.memory);
        }
        self.made.push(process);
        if let Some(thread) = self.threads.get_mut(&parent)
            && shared
        {
            thread.vfork_child = Some(new);
            thread.lends_memory = true;
        }
        let cause = if shared {
            Cause::VFork(new)
        } else {
            Cause::Fork(new)
        };
        self.report(parent, Pending::Family(cause));
        true
    }

    /// The processes it made that the client has not been told of.
    fn unknown(&mut self) -> Vec<Tid> {
        let made = |pending: &Pending| match pending {
            Pending::Family(Cause::Fork(child) | Cause::VFork(child)) => Some(*child),
            _ => None,
        };
        let pending = self.threads.values().flat_map(|thread| &thread.pending);
        pending.filter_map(made).collect()
    }

    fn lends_to(&self, child: Tid) -> bool {
        let lends = |thread: &Thread| thread.lends_memory && thread.vfork_child == Some(child);
        self.threads.values().any(lends)
    }

    /// A process that runs in this memory is not to be debugged any more. It runs on among our traps.
    fn take_back(&mut self, mut child: Tracee) {
        let pid = child.pid();
        for (at, patch) in child.breakpoints.patches() {
            if !self.breakpoints.trapped(at) {
                patch.lift(&self.memory, at);
            }
        }
        for thread in self.threads.values_mut() {
            thread.lends_memory &= thread.vfork_child != Some(pid);
        }
        if let Some(thread) = child.threads.get_mut(&pid) {
            self.adopt_shared(pid, thread);
        }
    }

    /// This process leaves the memory it ran in. What the client planted there, it planted for both.
    pub(super) fn leave_memory(&mut self) {
        if let Some((owner, memory)) = self.borrowed.take() {
            let planted = std::mem::take(&mut self.breakpoints);
            self.left_behind = Some((owner, memory, planted));
        }
    }
}
