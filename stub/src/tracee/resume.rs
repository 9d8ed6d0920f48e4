//! From halted to going: each thread gets its action, passes the traps that have been answered for,
//! and starts.

use crate::ptrace::action::Action;
use crate::ptrace::run_state::RunState;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{At, Motion, Pending, State, Thread};
use crate::subscription::stop_policy::SyscallFilter;
use crate::sys::ptrace;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;

impl Tracee {
    /// Resumes in all-stop mode; `action` says what each thread does, `others` what new threads do.
    /// Returns a stop at once if one waits to be reported; then nothing has moved.
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
        let mut stayed = Vec::new();
        for (tid, thread) in &mut self.process.threads {
            thread.action = action(*tid);
            if thread.through.take().is_some() {
                // It was to go, and another's stop came first: the trap's hit has been dealt with.
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
        if !self.tracepoints.fast.jump_pads.is_empty() || self.subscriptions.want_fast() {
            // Where no trap can be planted, no instruction can be executed.
            let _ = self.complete_probes();
        }
        self.step_over_traps();
        if let Some(stop) = self.take_stop() {
            return Some(stop);
        }
        self.process.let_outlive_stub();
        self.subscriptions.halt_ends(monotonic_ns());
        self.start_all();
        None
    }

    /// The client's interrupt, if it is due to one of the threads that are to go. No thread moves,
    /// and signals are kept.
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

    /// Drops what is no longer true: hits of traps that have been removed, and steps that no client
    /// waits for.
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

    /// Starts every thread that is to run. If one is to step, all start together: its traps must be
    /// planted before.
    pub(super) fn start_all(&mut self) {
        if self.process.no_thread_runs() {
            self.enter_interrupted_calls();
        }
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
            // To be reported first.
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
            // The stop may be another's than this signal's by now.
            let _ = ptrace::set_signal_info(tid, &info);
            self.go(tid, motion, info.signal());
        } else {
            // Queued first, so that it is taken before the thread executes anything.
            thread.deliver.push_front(info);
            self.process.requeue_signals(tid);
            self.go(tid, motion, 0);
        }
        self.process.requeue_signals(tid);
    }

    /// Lets a stopped thread go, delivering `signal` unless it is zero. A thread that is to step
    /// may have to wait until all are stopped.
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
