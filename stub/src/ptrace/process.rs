//! One traced process: its properties, and its threads' stops in the order in which the kernel
//! reported them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use nix::errno::Errno;

use crate::arch::watch::Watch;
use crate::sys::memory::Memory;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::stat::Stat;
use crate::sys::wait::Status;
use crate::sys::{Tid, proc_file};

use super::action::Action;
use super::blocked_call::BlockedCall;
use super::fork::Children;
use super::run_state::RunControl;
use super::stop::Stop;
use super::thread::{At, Motion, Pending, State, Stopped, Thread};
use super::threads::Threads;
use super::wait_queue::WaitQueue;

/// A traced process. Knows threads and the kernel, but not the traps in the process's memory.
pub(crate) struct Process {
    pid: Tid,
    /// It was running before the stub attached to it.
    pub(crate) attached: bool,
    /// Threads in calls that a stop would end early or with an error are not stopped.
    pub(crate) leaves_asleep: bool,
    /// It has been resumed since the stub started it.
    pub(crate) resumed: bool,
    pub(crate) memory: Memory,
    pub(crate) threads: Threads,
    /// Processes that it created and that are not debugged.
    pub(crate) children: Children,
    pub(crate) reports: WaitQueue,
    pub(crate) run: RunControl,
    /// Watchpoints in the debug registers of every thread.
    pub(crate) watches: Vec<Watch>,
    /// Thread exits that the stub must report.
    pub(crate) thread_exits: VecDeque<(Tid, i32)>,
    /// Action of threads that no resume action names.
    pub(crate) default_action: Action,
    /// Threads that will start together, while they are being collected.
    pub(super) starting: Option<Vec<(Tid, Motion, i32)>>,
    /// The time at which to clear the kernel's single-step state of threads.
    pub(super) step_reset_at: Option<Instant>,
    /// How the process ended, if it has.
    pub(crate) end: Option<Stop>,
    /// The thread that the stub reported last.
    shown: Tid,
}

impl Process {
    /// A halted process without any known thread yet.
    pub(crate) fn new(pid: Tid, attached: bool, memory: Memory, reports: WaitQueue) -> Process {
        Process {
            pid,
            attached,
            resumed: false,
            leaves_asleep: false,
            memory,
            threads: Threads::default(),
            children: Children::default(),
            reports,
            run: RunControl::halted(),
            watches: Vec::new(),
            thread_exits: VecDeque::new(),
            default_action: Action::Hold,
            starting: None,
            step_reset_at: None,
            end: None,
            shown: pid,
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Tid {
        self.pid
    }

    /// True if threads run.
    pub(crate) fn is_going(&self) -> bool {
        self.run.is_going()
    }

    /// True if threads run and an event waits to be reported.
    pub(crate) fn has_event(&self) -> bool {
        self.run.is_going() && self.run.has_event()
    }

    /// How the process ended, if it has.
    pub(crate) fn end(&self) -> Option<&Stop> {
        self.end.as_ref()
    }

    /// True if the process has ended and its end was reported. If the stub reports another
    /// process's stop first, the end waits for the next resume.
    pub(crate) fn is_past(&self) -> bool {
        self.end.is_some() && !self.run.has_event()
    }

    /// The thread that the stub reported last, or another thread if that has ended.
    pub(crate) fn current(&self) -> Tid {
        if self.listed(self.shown) {
            return self.shown;
        }
        self.any_task()
    }

    /// All threads that still execute the program, the first one first.
    pub(crate) fn tids(&self) -> impl Iterator<Item = Tid> {
        let first = Some(self.pid).filter(|pid| self.listed(*pid));
        let rest = self.threads.keys().copied().filter(|tid| *tid != self.pid);
        first
            .into_iter()
            .chain(rest.filter(|tid| self.listed(*tid)))
    }

    /// True if this thread exists and still executes the program.
    pub(crate) fn listed(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| !matches!(thread.state, State::Exiting))
    }

    /// The thread's registers, if it is stopped.
    pub(crate) fn stopped(&mut self, tid: Tid) -> Option<&mut Stopped> {
        self.threads.get_mut(&tid).and_then(Thread::stopped)
    }

    /// The signal that the client saw when this thread stopped.
    pub(crate) fn shown_signal(&self, tid: Tid) -> Option<SignalInfo> {
        self.threads.get(&tid)?.shown_signal.clone()
    }

    /// Replaces the signal that this thread stopped with.
    pub(crate) fn change_signal(&mut self, tid: Tid, info: SignalInfo) -> Result<(), Errno> {
        let thread = self.threads.get_mut(&tid).ok_or(Errno::ESRCH)?;
        match &mut thread.shown_signal {
            Some(shown) => *shown = info,
            None => ptrace::set_signal_info(tid, &info)?,
        }
        Ok(())
    }

    /// The thread's name, as the kernel knows it.
    pub(crate) fn thread_name(&self, tid: Tid) -> Option<Vec<u8>> {
        let mut name = std::fs::read(format!("/proc/{}/task/{tid}/comm", self.pid)).ok()?;
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        Some(name)
    }

    /// The processor on which the thread ran last.
    pub(crate) fn thread_core(&self, tid: Tid) -> Option<u32> {
        Stat::of_thread(self.pid, tid)?.processor()
    }

    /// Path of the program's file.
    pub(crate) fn executable(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.any_task())).ok()
    }

    /// Reads a file of the process's directory in `/proc`. Empty if it cannot be read.
    pub(crate) fn read_proc(&self, name: &str) -> Vec<u8> {
        proc_file::read(format!("/proc/{}/{name}", self.any_task()))
    }

    /// A thread whose memory still exists. An exited first thread has none.
    pub(crate) fn any_task(&self) -> Tid {
        self.tids().next().unwrap_or(self.pid)
    }

    /// Makes this the reported thread, stopped where the client sees it.
    pub(crate) fn mark_shown(&mut self, tid: Tid) {
        self.shown = tid;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.shown_at = thread.stopped().and_then(|stopped| stopped.pc().ok());
        }
    }

    /// Makes this the reported thread, without its address: the client has seen no trap there.
    pub(crate) fn mark_current(&mut self, tid: Tid) {
        self.shown = tid;
    }

    /// The next report about a thread or child of this process (see [`WaitQueue::next`]).
    pub(crate) fn next_report(&self, block: bool) -> Option<(Tid, Status)> {
        self.reports.next(self.pid, &|tid| self.knows(tid), block)
    }

    /// Waits for the next report about this thread. Keeps reports about others.
    pub(crate) fn report_of(&self, tid: Tid) -> Option<Status> {
        self.reports.wait_for(tid)
    }

    /// The next report about this thread, if one is available.
    pub(crate) fn report_now(&self, tid: Tid) -> Option<Status> {
        self.reports.now(tid)
    }

    /// True if there are unhandled reports about this process.
    pub(crate) fn has_reports(&self) -> bool {
        self.reports.has_any(|tid| self.knows(tid))
    }

    /// True if this is one of the process's threads or children.
    pub(crate) fn knows(&self, tid: Tid) -> bool {
        self.threads.contains_key(&tid) || self.children.contains(tid)
    }

    /// Records a stop of a thread that the kernel has reported.
    pub(crate) fn mark_stopped(&mut self, tid: Tid, at: At) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.now_stopped(tid, at);
            if at != At::InCall {
                self.avoid_restart_call(tid);
            }
            if at == At::Event {
                self.repeat_call(tid);
            }
        }
    }

    /// Queues something to report about a thread.
    pub(crate) fn report(&mut self, tid: Tid, pending: Pending) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.pending.push_back(pending);
            self.run.set_event();
        }
    }

    /// True if something about a thread waits to be reported.
    pub(crate) fn has_pending(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| !thread.pending.is_empty())
    }

    /// Takes the stop to report next. A step comes first, because the client that requested it
    /// waits for it.
    pub(crate) fn take_pending(&mut self) -> Option<Stop> {
        let has_step = |thread: &Thread| matches!(thread.pending.front(), Some(Pending::Step));
        let due =
            |thread: &&mut Thread| thread.action != Action::Hold && !thread.pending.is_empty();
        let stepped = self
            .threads
            .iter()
            .find(|(_, thread)| has_step(thread))
            .map(|(tid, _)| *tid);
        let tid = match stepped {
            Some(tid) => tid,
            None => *self.threads.iter_mut().find(|(_, thread)| due(thread))?.0,
        };
        let cause = self.threads.get_mut(&tid)?.take_cause()?;
        Some(Stop::Thread(tid, cause))
    }

    /// True if no thread is left to run, but some are held. Skips threads that the process's exit
    /// is about to end: these look held, but are no longer stopped.
    pub(crate) fn nothing_runs(&self) -> bool {
        let alive = |thread: &Thread| !matches!(thread.state, State::Exiting);
        !self
            .threads
            .values()
            .any(|thread| alive(thread) && thread.action != Action::Hold)
            && self
                .threads
                .iter()
                .any(|(tid, thread)| alive(thread) && ptrace::event_message(*tid).is_ok())
    }

    /// True if every thread that can stop is stopped. With `but_in_vfork`, threads that wait for a
    /// child count as stopped.
    pub(crate) fn all_stopped(&self, but_in_vfork: bool) -> bool {
        self.threads.iter().all(|(tid, thread)| match thread.state {
            State::Stopped(_) => true,
            // The child for which the thread waits may be held.
            State::Running(_) if thread.lends_memory || thread.unstoppable.is_some() => true,
            State::Running(_) => but_in_vfork && thread.vfork_child.is_some(),
            State::Exiting => *tid == self.pid,
        })
    }

    /// True if no thread executes anything now.
    pub(crate) fn no_thread_runs(&self) -> bool {
        let runs = |thread: &Thread| matches!(thread.state, State::Running(_)) && thread.can_stop();
        !self.threads.values().any(runs)
    }

    /// True if a report about a thread may follow.
    pub(crate) fn may_report(&self) -> bool {
        self.reports.has_tasks() && Stat::of(self.pid).is_some_and(|stat| !stat.has_ended())
    }

    /// True if a thread that is not stopped is in an uninterruptible wait.
    pub(crate) fn has_uninterruptible_wait(&self) -> bool {
        let runs = |thread: &Thread| matches!(thread.state, State::Running(_));
        let mut running = self.threads.iter().filter(|(_, thread)| runs(thread));
        running.any(|(tid, _)| BlockedCall::uninterruptible(self.pid, *tid).is_some())
    }

    /// Lets the threads that are in an uninterruptible wait count as stopped, apart from those that
    /// were left asleep, which already do.
    pub(crate) fn mark_unstoppable(&mut self) {
        for (tid, thread) in &mut self.threads {
            if matches!(thread.state, State::Running(_)) && !thread.is_left {
                thread.unstoppable = BlockedCall::uninterruptible(self.pid, *tid);
            }
        }
    }

    /// True if a child that is not traced may run in this memory, because its creator was in
    /// vfork(2) when it was traced. A trap would kill such a child.
    pub(crate) fn has_untraced_child_inside(&self) -> bool {
        let mut waits = self
            .threads
            .values()
            .filter_map(|thread| thread.unstoppable);
        waits.any(|call| call.may_lend_memory())
    }

    /// True if a thread runs, or is about to.
    pub(crate) fn any_goes(&self) -> bool {
        let mut threads = self.threads.values();
        self.end.is_none() && threads.any(|thread| thread.action != Action::Hold)
    }

    /// Threads that are held.
    pub(crate) fn held_threads(&mut self) -> Vec<Tid> {
        let held = |(tid, thread): (&Tid, &mut Thread)| {
            (thread.action == Action::Hold && thread.stopped().is_some()).then_some(*tid)
        };
        self.threads.iter_mut().filter_map(held).collect()
    }

    /// Asks every running thread to stop.
    pub(crate) fn interrupt_all(&mut self) {
        for (tid, thread) in &mut self.threads {
            thread.leave_no_more();
            let is_left = self.leaves_asleep && thread.leave_asleep(self.pid, *tid);
            if let State::Running(running) = &thread.state
                && !is_left
            {
                running.interrupt();
            }
        }
    }

    /// True if a thread was left asleep.
    pub(crate) fn has_left(&self) -> bool {
        self.threads.values().any(|thread| thread.is_left)
    }

    /// Lets threads that were left asleep count as running, because they may wake.
    pub(crate) fn leave_no_more(&mut self) {
        for thread in self.threads.values_mut() {
            thread.leave_no_more();
        }
    }

    /// Asks a thread to stop that was left asleep, which ends its call. Prefers one whose call the
    /// stub repeats then. `None` if no thread was left.
    pub(crate) fn interrupt_left(&mut self) -> Option<Tid> {
        let left = self.threads.iter_mut().filter(|(_, thread)| thread.is_left);
        let ends = |thread: &Thread| !thread.unstoppable.is_some_and(|call| call.is_repeated());
        let (tid, thread) = left.min_by_key(|(_, thread)| ends(thread))?;
        thread.leave_no_more();
        if let State::Running(running) = &thread.state {
            running.interrupt();
        }
        Some(*tid)
    }

    /// True if the thread was left asleep in a call and has left the call. Then it can be stopped.
    pub(crate) fn has_woken(&mut self, tid: Tid) -> bool {
        let pid = self.pid;
        let left = self.threads.get_mut(&tid).filter(|thread| thread.is_left);
        left.is_some_and(|thread| !thread.leave_asleep(pid, tid))
    }

    /// Asks a thread to stop. Returns `false` if it does not run, or cannot stop because it is in
    /// an uninterruptible wait, e.g. in vfork(2).
    pub(crate) fn interrupt(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        if self.leaves_asleep && thread.leave_asleep(self.pid, tid) {
            return false;
        }
        match &thread.state {
            State::Running(running) if thread.can_stop() => {
                running.interrupt();
                true
            }
            _ => false,
        }
    }

    /// True if a thread runs and can stop.
    pub(crate) fn runs_and_can_stop(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| matches!(thread.state, State::Running(_)) && thread.can_stop())
    }

    /// Queues a stop that the client has requested for this thread. Returns true if there was such
    /// a request.
    pub(crate) fn wanted_stop(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        match thread.wanted.take() {
            Some(cause) if thread.pending.is_empty() => {
                self.report(tid, Pending::Wanted(cause));
                true
            }
            _ => false,
        }
    }
}
