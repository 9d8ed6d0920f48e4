//! Letting go: detaching leaves the program as it was before us, killing leaves none.

use std::collections::BTreeMap;

use crate::sys::Tid;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::Stop;
use crate::ptrace::thread::{Pending, State};
use crate::subscription::stop_policy::{SignalSet, StopPolicy};

impl Tracee {
    /// No client controls the program any more, but it is observed, or commands of breakpoints
    /// persist. All else that was planted for control goes, and the program goes on as if it had
    /// been detached from. The end, if that has come.
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

    /// Whether commands of its breakpoints are to be executed when the client has let it go.
    pub(crate) fn has_persistent_commands(&self) -> bool {
        self.breakpoints.persist()
    }

    /// A client controls the program again, and it is halted: what an earlier one has left behind
    /// goes.
    pub(crate) fn taken(&mut self) {
        self.breakpoints.remove_planted(&self.process.memory, true);
    }

    /// Goes on without a controlling client: every thread, each with the signal that the client has
    /// seen it stop with.
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
                // A stop that no client waits for any more.
                Some(_) => {}
                None => return None,
            }
        }
    }

    /// Takes out all traps and lets every thread run untraced, with the signals it has not got yet.
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
                // One that is being killed may stop once more, at its end.
                State::Stopped(_) if ptrace::detach(*tid, 0).is_ok() => {}
                State::Stopped(_) => self.process.reports.release(*tid),
                State::Running(_) => self.process.reports.release(*tid),
                State::Exiting => {}
            }
        }
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
        // The client that had it killed knows.
        self.process.run.clear_event();
    }
}
