//! Resumes the program: each thread gets its action, passes its trap if the hit is handled, and
//! starts.

use crate::ptrace::action::Action;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{At, Motion, Pending, State, Thread};
use crate::subscription::stop_policy::SyscallFilter;
use crate::sys::ptrace;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;

impl Tracee {
    /// Resumes in all-stop mode. `action` returns the action of each thread, and new threads get
    /// `others`. If a stop already waits to be reported, returns it at once without resuming any
    /// thread.
    pub(crate) fn resume(
        &mut self,
        action: impl Fn(Tid) -> Action,
        others: Action,
    ) -> Option<Stop> {
        self.process.default_action = others.without_signal();
        self.process.run.set(RunState::AllStop);
        self.process.run.clear_event();
        self.process.cancel_step_reset();
        if self.process.end.is_some() {
            return self.take_stop();
        }
        let mut threads = self.process.threads.iter();
        let runs = |tid| matches!(action(tid), Action::Continue(_));
        if threads.any(|(tid, thread)| thread.is_left && !runs(*tid)) {
            // It would run on when it wakes, but is to be held or to step.
            self.leave_none_asleep();
        }
        let mut stayed = Vec::new();
        for (tid, thread) in &mut self.process.threads {
            thread.action = action(*tid);
            if thread.through.take().is_some() {
                // It was ready to pass a trap whose hit is handled, but another thread's stop came
                // first.
                let pc = thread.stopped().and_then(|stopped| stopped.pc().ok());
                stayed.extend(pc.map(|pc| (*tid, pc)));
            }
        }
        for (tid, at) in stayed {
            self.remember_hit(tid, at);
        }
        self.process.take_signals();
        self.drop_stale();
        if let Some(stop) = self.take_stop().or_else(|| self.due_interrupt()) {
            return Some(stop);
        }
        self.place_jumps_before_resume();
        self.step_over_traps();
        if let Some(stop) = self.take_stop() {
            return Some(stop);
        }
        self.process.let_outlive_stub();
        self.subscriptions.halt_ends(monotonic_ns());
        self.start_all();
        None
    }

    /// Reports the client's interrupt if it is due and a thread is to run. No thread runs, and
    /// signals are kept.
    fn due_interrupt(&mut self) -> Option<Stop> {
        if !self.interrupt_due {
            return None;
        }
        let current = self.process.current();
        let goes = |(tid, thread): (&Tid, &Thread)| {
            let stands = matches!(thread.state, State::Stopped(_));
            (stands && thread.action != Action::Hold).then_some(*tid)
        };
        let going: Vec<Tid> = self.process.threads.iter().filter_map(goes).collect();
        let tid = *going
            .iter()
            .find(|tid| **tid == current)
            .or(going.first())?;
        self.process.run.set(RunState::Halted);
        let stop = Stop::Thread(tid, Cause::Interrupt);
        self.show(&stop);
        Some(stop)
    }

    /// Drops reports that are no longer true: hits of traps that were removed, and steps that no
    /// client waits for.
    pub(super) fn drop_stale(&mut self) {
        for thread in self.process.threads.values_mut() {
            if thread.action == Action::Hold {
                continue;
            }
            let pc = match thread.pending.front() {
                Some(Pending::Breakpoint(_) | Pending::Tracepoint(_)) => {
                    thread.stopped().and_then(|s| s.pc().ok())
                }
                _ => None,
            };
            let stepping = thread.action.is_step();
            let (traps, jumps, watches) = (
                &self.breakpoints,
                &self.tracepoints.fast.jump_pads,
                &self.process.watches,
            );
            thread.pending.retain(|pending| match pending {
                Pending::Watch(watch) => watches.contains(watch),
                Pending::Breakpoint(at) => pc == Some(*at) && traps.planted(*at),
                Pending::Tracepoint(at) => {
                    pc == Some(*at) && (traps.probed(*at) || jumps.is_planted(*at))
                }
                Pending::Step => stepping,
                _ => true,
            });
        }
    }

    /// Starts every thread that is to run. If one is to step, all start together, because its traps
    /// must be inserted first.
    pub(super) fn start_all(&mut self) {
        if self.process.no_thread_runs() {
            self.enter_interrupted_calls();
        }
        self.process.leave_no_more();
        if self.process.threads.values().any(Thread::steps) {
            self.process.collect_starts();
        }
        let tids: Vec<Tid> = self.process.threads.keys().copied().collect();
        for tid in tids {
            self.start_one(tid);
        }
        self.process.start_collected();
    }

    /// Starts one stopped thread, if it is to run.
    pub(super) fn start_one(&mut self, tid: Tid) {
        if self.tracepoints.fast.is_inside_jump(tid) {
            return;
        }
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return;
        };
        let (State::Stopped(stopped), true) = (&thread.state, thread.action != Action::Hold) else {
            return;
        };
        if self.process.run.is_non_stop() && !thread.pending.is_empty() {
            // The stub reports the thread first.
            return;
        }
        if self.subscriptions.is_held(tid) {
            return;
        }
        let at = stopped.at();
        let motion = if thread.steps() {
            Motion::Step
        } else {
            Motion::Continue
        };
        let listens = at == At::GroupStop && !thread.action.is_step();
        thread.shown_at = None;
        thread.shown_signal = None;
        let through = thread.through.take();
        let through = through.or_else(|| self.through_collector(tid));
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return;
        };
        if !thread.deliver.is_empty()
            && through.is_some()
            && let Some(Ok(pc)) = thread.stopped().map(|stopped| stopped.pc())
        {
            self.remember_hit(tid, pc);
        }
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return;
        };
        let Some(info) = thread.deliver.pop_front() else {
            let motion = if listens { Motion::Listen } else { motion };
            if let (Some(slot), Some(stopped)) = (through, thread.stopped()) {
                let _ = stopped.set_pc(slot);
            }
            self.go(tid, motion, 0);
            return;
        };
        if at == At::Signal {
            // By now the kernel may have stopped the thread for another signal.
            let _ = ptrace::set_signal_info(tid, &info);
            self.go(tid, motion, info.signal());
        } else {
            // Queued first, so that the thread takes the signal before it executes anything.
            thread.deliver.push_front(info);
            self.process.requeue_signals(tid);
            self.go(tid, motion, 0);
        }
        self.process.requeue_signals(tid);
    }

    /// Resumes a stopped thread and delivers `signal` unless it is zero. A thread that is to step
    /// may have to wait until all threads are stopped.
    pub(super) fn go(&mut self, tid: Tid, motion: Motion, signal: i32) {
        let motion = match motion {
            Motion::Step if signal == 0 && self.steps_into_call(tid) => Motion::ToSystemCall,
            Motion::Step => match self.step_motion(tid, signal) {
                Some(motion) => motion,
                None => return self.step_queue.needs_halt = true,
            },
            Motion::Continue if self.stop_policy.calls != SyscallFilter::None => {
                Motion::ToSystemCall
            }
            other => other,
        };
        self.process.start_thread(tid, motion, signal);
    }
}
