//! Resumes stopped threads: signals, starts, and single instructions.

use crate::arch;
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::wait::Status;

use super::action::Action;
use super::process::Process;
use super::thread::{At, Motion, State};

/// How the execution of one instruction ended.
pub(crate) enum Executed {
    /// By a trap or the kernel's single-step: the thread has executed the instruction.
    Trap,
    /// The thread is entering the system call that the instruction makes.
    SystemCall,
    /// Another report about the thread came first.
    Report(Status),
    /// The thread is gone.
    Gone,
}

impl Process {
    /// Lets a program that the stub started outlive the stub, once it has been resumed.
    pub(crate) fn let_outlive_stub(&mut self) {
        if !self.attached && !self.resumed {
            for (tid, thread) in &self.threads {
                let _ = ptrace::set_options(*tid, thread.options());
            }
        }
        self.resumed = true;
    }

    /// Moves the signals of the threads' actions into their delivery queues.
    pub(crate) fn take_signals(&mut self) {
        for thread in self.threads.values_mut() {
            if thread.action == Action::Hold {
                continue;
            }
            let signal = thread.action.signal();
            let shown = thread.shown_signal.take();
            if signal != 0 {
                let info = shown
                    .filter(|info| info.signal() == signal)
                    .unwrap_or_else(|| plain_signal(signal));
                thread.deliver.push_front(info);
            }
            thread.action = thread.action.without_signal();
        }
    }

    /// Sends a thread the signals that are still queued for it. They return as stops, which the
    /// stub does not report again.
    pub(crate) fn requeue_signals(&mut self, tid: Tid) {
        let pid = self.pid();
        if let Some(thread) = self.threads.get_mut(&tid) {
            for info in std::mem::take(&mut thread.deliver) {
                thread.returning.push(info.signal());
                let _ = ptrace::queue_signal(pid, tid, &info);
            }
        }
    }

    /// True if another process or thread sent the `SIGTRAP` with which a thread stopped.
    pub(crate) fn is_sent_trap(&self, tid: Tid) -> bool {
        ptrace::signal_info(tid).is_ok_and(|info| !info.is_raised_trap())
    }

    /// Begins to collect threads, so that they start together.
    pub(crate) fn collect_starts(&mut self) {
        self.starting = Some(Vec::new());
    }

    /// Starts the threads that were collected.
    pub(crate) fn start_collected(&mut self) {
        for (tid, motion, signal) in self.starting.take().into_iter().flatten() {
            self.start_now(tid, motion, signal);
        }
    }

    /// Resumes a stopped thread and delivers `signal` unless it is zero. While starts are being
    /// collected, the thread starts with the others.
    pub(crate) fn start_thread(&mut self, tid: Tid, motion: Motion, signal: i32) {
        if motion == Motion::Continue
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            // The stub will not see the end of the system call.
            thread.in_call = false;
        }
        match &mut self.starting {
            Some(starting) => starting.push((tid, motion, signal)),
            None => self.start_now(tid, motion, signal),
        }
    }

    fn start_now(&mut self, tid: Tid, motion: Motion, signal: i32) {
        self.set_exit_stop(tid);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.go(motion, signal);
        // A stop for another reason cancels a pending interrupt, so interrupt again.
        if thread.wanted.is_some()
            && let State::Running(running) = &thread.state
        {
            running.interrupt();
        }
    }

    /// Lets a thread execute an instruction, and waits for its next report.
    pub(crate) fn execute(&mut self, tid: Tid, motion: Motion) -> Executed {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Executed::Gone;
        };
        thread.go(motion, 0);
        match self.report_of(tid) {
            Some(Status::Signal(libc::SIGTRAP)) if !self.is_sent_trap(tid) => {
                self.mark_stopped(tid, At::Signal);
                Executed::Trap
            }
            Some(Status::Syscall) => {
                self.mark_stopped(tid, At::InCall);
                Executed::SystemCall
            }
            Some(status) => Executed::Report(status),
            None => Executed::Gone,
        }
    }

    /// Threads that a halt has interrupted in a system call under a trap, and the trap's address.
    pub(crate) fn interrupted_calls(&mut self) -> Vec<(Tid, u64)> {
        let mut found = Vec::new();
        for (tid, thread) in &mut self.threads {
            let goes = matches!(thread.action, Action::Continue(_));
            if !goes || !thread.deliver.is_empty() || !thread.pending.is_empty() {
                continue;
            }
            let Some((at, before)) = thread.entered.take() else {
                continue;
            };
            let stopped = thread
                .stopped()
                .filter(|stopped| stopped.at() != At::GroupStop);
            let interrupted = stopped.is_some_and(|stopped| {
                let behind = stopped.pc().map_or(u64::MAX, |pc| pc.wrapping_sub(at));
                let now = stopped.general();
                now.is_ok_and(|now| match behind {
                    0 => arch::unmoved(now, &before),
                    2 | 4 => arch::was_interrupted(now),
                    _ => false,
                })
            });
            if interrupted {
                found.push((*tid, at));
            } else {
                thread.entered = Some((at, before));
            }
        }
        found
    }
}

/// Offset of `si_pid`: after three ints, aligned like the union that contains it.
const SENDER: usize = 12_usize.next_multiple_of(align_of::<usize>());

/// A signal as if from kill(2).
fn plain_signal(signal: i32) -> SignalInfo {
    let mut bytes = [0; ptrace::SIGINFO_SIZE];
    bytes[..4].copy_from_slice(&signal.to_ne_bytes());
    // si_code: SI_USER is 0.
    let ours = std::process::id().to_ne_bytes();
    bytes[SENDER..SENDER + 4].copy_from_slice(&ours);
    SignalInfo::from_bytes(bytes)
}
