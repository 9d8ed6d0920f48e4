//! Detaches from the program, which leaves it as it was before, or kills it.

use std::collections::BTreeMap;

use crate::sys::Tid;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::Stop;
use crate::ptrace::thread::{Pending, State, Thread};
use crate::subscription::stop_policy::{SignalSet, StopPolicy};

impl Tracee {
    /// Continues without a client in control, for observers or persistent breakpoint commands.
    /// Removes everything else that was planted for control, and resumes the program as if it was
    /// detached. Returns the end of the process if it has ended.
    pub(crate) fn set_free(&mut self) -> Option<Stop> {
        if self.process.end.is_some() {
            return None;
        }
        if self.process.run.is_going() {
            self.halt();
            self.process.run.set(RunState::Halted);
        }
        self.breakpoints.remove_planted(&self.process.memory, false);
        self.process.remove_watches();
        self.go_on()
    }

    /// True if breakpoint commands must still run after the client has detached.
    pub(crate) fn has_persistent_commands(&self) -> bool {
        self.breakpoints.persist()
    }

    /// Removes what an earlier client has left behind, because a new one is in control. The program
    /// is halted.
    pub(crate) fn taken(&mut self) {
        self.breakpoints.remove_planted(&self.process.memory, true);
    }

    /// Resumes every thread without a client in control. Each thread gets the signal that the
    /// client has seen it stop with.
    pub(crate) fn go_on(&mut self) -> Option<Stop> {
        let allowed = self.stop_policy.deliver;
        self.stop_policy = StopPolicy {
            pass: SignalSet::all(),
            ..StopPolicy::default()
        };
        if self.process.run.is_going() {
            return None;
        }
        self.interrupt_due = false;
        loop {
            let threads = self.process.threads.iter();
            let signals: BTreeMap<Tid, i32> = threads
                .filter_map(|(tid, thread)| Some((*tid, thread.shown_signal.as_ref()?.signal())))
                .filter(|(_, signal)| *signal != libc::SIGTRAP)
                .filter(|(_, signal)| allowed.is_none_or(|set| set.contains(*signal)))
                .collect();
            let action = |tid| Action::Continue(signals.get(&tid).copied().unwrap_or(0));
            match self.resume(action, Action::Continue(0)) {
                Some(end @ (Stop::Exited(_) | Stop::Killed(_))) => return Some(end),
                // No client waits for this stop any more.
                Some(_) => {}
                None => return None,
            }
        }
    }

    /// Removes all traps and detaches from every thread, with the signals that it has not received
    /// yet.
    pub(crate) fn detach(mut self) {
        if self.process.end.is_some() {
            return;
        }
        if self.process.run.is_going() {
            self.halt();
        }
        let planted = self.patches();
        self.remove_jumps();
        self.breakpoints.remove_all(&self.process.memory);
        // A thread that was left asleep may have run into a trap just before.
        self.stop_woken();
        self.remove_trap_handler();
        self.displaced.remove_all(&self.process.memory);
        self.process.remove_watches();
        self.release_children(&planted);
        let pid = self.process.pid();
        let allowed = self.stop_policy.deliver;
        for (tid, thread) in &mut self.process.threads {
            let mut signals = std::mem::take(&mut thread.deliver);
            if let Some(shown) = thread.shown_signal.take()
                && shown.signal() != libc::SIGTRAP
                && allowed.is_none_or(|set| set.contains(shown.signal()))
            {
                signals.push_back(shown);
            }
            for pending in &thread.pending {
                if let Pending::Signal(info) = pending
                    && info.signal() != libc::SIGTRAP
                {
                    signals.push_back(info.clone());
                }
            }
            for info in &signals {
                let _ = ptrace::queue_signal(pid, *tid, info);
            }
            if let Some(stopped) = thread.stopped() {
                stopped.write_shown_pc();
            }
            match thread.state {
                // A thread that is being killed may stop once more, at its end.
                State::Stopped(_) if ptrace::detach(*tid, 0).is_ok() => {}
                State::Stopped(_) => self.process.reports.release(*tid),
                State::Running(_) => self.process.reports.release(*tid),
                State::Exiting => {}
            }
        }
    }

    /// Detaches before the stub ends. If the program has nothing of the stub, its threads run on:
    /// the kernel releases them at the stub's end. A detach by request would stop each of them.
    pub(crate) fn detach_at_end(self) {
        if !self.runs_untouched() {
            self.detach();
        }
    }

    /// True if all threads run, and the stub has left nothing in the program.
    fn runs_untouched(&self) -> bool {
        let fast = &self.tracepoints.fast;
        let has_nothing = self.breakpoints.is_empty()
            && self.displaced.is_empty()
            && fast.jump_pads.is_unused()
            && self.tracepoints.trap_handler.start().is_none()
            && self.process.watches.is_empty()
            && self.process.children.any_tid().is_none();
        self.process.attached
            && has_nothing
            && self.process.threads.values().all(Thread::runs_untouched)
    }

    /// Kills the program and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if self.process.end.is_some() {
            return;
        }
        let pid = self.process.pid();
        self.process.run.set(RunState::Halted);
        let planted = self.patches();
        self.breakpoints.remove_all(&self.process.memory);
        self.displaced.remove_all(&self.process.memory);
        let _ = ptrace::kill(pid);
        while self.process.end.is_none() {
            match self.process.next_report(true) {
                Some((tid, Status::Exiting)) => {
                    let _ = ptrace::cont(tid, 0);
                }
                Some((tid, status)) => {
                    self.handle(tid, status);
                    if self.process.children.any_at_trap() {
                        self.step_children();
                    }
                }
                _ => self.process.end = Some(Stop::Killed(libc::SIGKILL)),
            }
        }
        self.release_children(&planted);
        // The client that requested this knows of the end.
        self.process.run.clear_event();
    }
}
