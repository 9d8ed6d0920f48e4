//! One traced process: what can be asked about it, and its threads' stops in the order of their
//! reports.

use std::collections::VecDeque;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use nix::errno::Errno;

use crate::arch::watch::Watch;
use crate::sys::Tid;
use crate::sys::memory::Memory;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::wait::Status;

use super::action::Action;
use super::fork::Children;
use super::run_state::RunControl;
use super::stop::Stop;
use super::thread::{At, Motion, Pending, State, Stopped, Thread};
use super::threads::Threads;
use super::wait_queue::WaitQueue;

/// A traced process. It knows threads and the kernel, but nothing of what is planted in its memory.
pub(crate) struct Process {
    pid: Tid,
    /// It ran before the stub attached to it.
    pub(crate) attached: bool,
    /// It has been resumed since the stub started it.
    pub(crate) resumed: bool,
    pub(crate) memory: Memory,
    pub(crate) threads: Threads,
    /// Processes that it made and that are not debugged.
    pub(crate) children: Children,
    pub(crate) reports: WaitQueue,
    pub(crate) run: RunControl,
    /// What the debug registers of every thread watch.
    pub(crate) watches: Vec<Watch>,
    /// Ends of threads that are to be reported.
    pub(crate) thread_exits: VecDeque<(Tid, i32)>,
    /// What threads do that no action names.
    pub(crate) default_action: Action,
    /// Threads that are to start together, while they are being collected.
    pub(super) starting: Option<Vec<(Tid, Motion, i32)>>,
    /// When the kernel is to forget that threads made steps.
    pub(super) step_reset_at: Option<Instant>,
    /// How it ended.
    pub(crate) end: Option<Stop>,
    /// The thread that was reported last.
    shown: Tid,
}

impl Process {
    /// A halted process, of which no thread is known yet.
    pub(crate) fn new(pid: Tid, attached: bool, memory: Memory, reports: WaitQueue) -> Process {
        Process {
            pid,
            attached,
            resumed: false,
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

    /// Whether threads run.
    pub(crate) fn is_going(&self) -> bool {
        self.run.is_going()
    }

    /// Whether threads run and something is to be reported.
    pub(crate) fn has_event(&self) -> bool {
        self.run.is_going() && self.run.has_event()
    }

    /// How it ended, if it did.
    pub(crate) fn end(&self) -> Option<&Stop> {
        self.end.as_ref()
    }

    /// Whether it has ended and that has been reported. If another process's stop is reported
    /// first, its end waits for the next resume.
    pub(crate) fn is_past(&self) -> bool {
        self.end.is_some() && !self.run.has_event()
    }

    /// The thread that was reported last, or another one if that has ended.
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

    /// Whether this thread exists and still executes the program.
    pub(crate) fn listed(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| !matches!(thread.state, State::Exiting))
    }

    /// The thread's registers, if it is stopped.
    pub(crate) fn stopped(&mut self, tid: Tid) -> Option<&mut Stopped> {
        self.threads.get_mut(&tid).and_then(Thread::stopped)
    }

    /// The signal that the client has seen this thread stop with.
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

    /// The processor that the thread ran on last.
    pub(crate) fn thread_core(&self, tid: Tid) -> Option<u32> {
        last_processor(self.pid, tid)
    }

    /// The program's file.
    pub(crate) fn executable(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.any_task())).ok()
    }

    /// A file of the process's directory in `/proc`, empty if it cannot be read.
    pub(crate) fn read_proc(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(format!("/proc/{}/{name}", self.any_task())) {
            let _ = file.read_to_end(&mut bytes);
        }
        bytes
    }

    /// A thread whose memory is still there. The first thread's is not when it has exited.
    pub(crate) fn any_task(&self) -> Tid {
        self.tids().next().unwrap_or(self.pid)
    }

    /// The client sees this thread where it stands.
    pub(crate) fn mark_shown(&mut self, tid: Tid) {
        self.shown = tid;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.shown_at = thread.stopped().and_then(|stopped| stopped.pc().ok());
        }
    }

    /// The client sees this thread, but has seen no trap at its address.
    pub(crate) fn mark_current(&mut self, tid: Tid) {
        self.shown = tid;
    }

    /// The next report about a thread or child of this process; see [`WaitQueue::next`].
    pub(crate) fn next_report(&self, block: bool) -> Option<(Tid, Status)> {
        self.reports.next(self.pid, &|tid| self.knows(tid), block)
    }

    /// Waits for the next report about this thread. Keeps those about others.
    pub(crate) fn report_of(&self, tid: Tid) -> Option<Status> {
        self.reports.wait_for(tid)
    }

    /// The next report about this thread, if there is one now.
    pub(crate) fn report_now(&self, tid: Tid) -> Option<Status> {
        self.reports.now(tid)
    }

    /// Whether there are reports about it that have not been handled.
    pub(crate) fn has_reports(&self) -> bool {
        self.reports.has_any(|tid| self.knows(tid))
    }

    /// Whether this is one of its threads or children.
    pub(crate) fn knows(&self, tid: Tid) -> bool {
        self.threads.contains_key(&tid) || self.children.contains(tid)
    }

    /// The kernel has reported that a thread stopped.
    pub(crate) fn mark_stopped(&mut self, tid: Tid, at: At) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.now_stopped(tid, at);
            if at != At::InCall {
                self.avoid_restart_call(tid);
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

    /// Whether something is to be reported about a thread.
    pub(crate) fn has_pending(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| !thread.pending.is_empty())
    }

    /// Takes the stop that is reported next. A step comes first: the client that asked for it waits
    /// for it.
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

    /// Whether no thread is left to run, but some are held. Threads that the process's exit is
    /// about to end look held, but are no longer stopped.
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

    /// Whether every thread is stopped that can stop. `but_in_vfork`: threads that wait for a child
    /// count as stopped.
    pub(crate) fn all_stopped(&self, but_in_vfork: bool) -> bool {
        self.threads.iter().all(|(tid, thread)| match thread.state {
            State::Stopped(_) => true,
            // The child that it waits for may be held.
            State::Running(_) if thread.lends_memory => true,
            State::Running(_) => but_in_vfork && thread.vfork_child.is_some(),
            State::Exiting => *tid == self.pid,
        })
    }

    /// Whether no thread executes anything now.
    pub(crate) fn no_thread_runs(&self) -> bool {
        let runs = |thread: &Thread| {
            let waits = thread.lends_memory || thread.vfork_child.is_some();
            matches!(thread.state, State::Running(_)) && !waits
        };
        !self.threads.values().any(runs)
    }

    /// Whether a thread goes, or is about to.
    pub(crate) fn any_goes(&self) -> bool {
        let mut threads = self.threads.values();
        self.end.is_none() && threads.any(|thread| thread.action != Action::Hold)
    }

    /// The threads that are held.
    pub(crate) fn held_threads(&mut self) -> Vec<Tid> {
        let held = |(tid, thread): (&Tid, &mut Thread)| {
            (thread.action == Action::Hold && thread.stopped().is_some()).then_some(*tid)
        };
        self.threads.iter_mut().filter_map(held).collect()
    }

    /// Asks every thread that runs to stop.
    pub(crate) fn interrupt_all(&self) {
        for thread in self.threads.values() {
            if let State::Running(running) = &thread.state {
                running.interrupt();
            }
        }
    }

    /// Asks a thread to stop if it runs and can stop. `false`: it does not, or it waits in vfork(2)
    /// for its child.
    pub(crate) fn interrupt(&self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get(&tid) else {
            return false;
        };
        match &thread.state {
            State::Running(running) if thread.can_stop() => {
                running.interrupt();
                true
            }
            _ => false,
        }
    }

    /// Whether a thread runs and can stop.
    pub(crate) fn runs_and_can_stop(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| matches!(thread.state, State::Running(_)) && thread.can_stop())
    }

    /// A stop that the client has asked for. Whether it was one.
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

/// The processor a thread ran on last: field 39 of its `stat` (proc(5)).
pub(crate) fn last_processor(process: Tid, tid: Tid) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{process}/task/{tid}/stat")).ok()?;
    // The name in field 2 may contain anything, a parenthesis too.
    let after = stat.iter().rposition(|byte| *byte == b')')? + 2;
    let field = stat.get(after..)?.split(|byte| *byte == b' ').nth(39 - 3)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}
