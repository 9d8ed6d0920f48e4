//! From halted to going: what each thread is to do, and getting it past the traps it has
//! already answered for.
//!
//! **When a trap is stepped over.** A thread that the client saw stop at an address, and that is still there, has been
//! dealt with: if a breakpoint is planted there, resuming executes the instruction under it.
//! A thread that merely happened to be stopped there has not executed it and has not been
//! seen: it traps, or a hit would be lost.
//!
//! Stepping over happens while every thread is still held, so that nobody runs through the gap.
//! An instruction that enters the kernel may wait there for a thread that we hold; it is therefore only
//! taken as far as the kernel's door, behind which the trap can be put back. Most instructions need none of this: see `step_over`.

use crate::arch;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::wait::Status;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;
use crate::ptrace::action::Action;
use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{At, Motion, Pending, State, Thread};

/// How a step over a trap ended.
#[derive(PartialEq, Eq)]
pub(super) enum Over {
    /// The instruction has been executed.
    Stepped,
    /// The thread is inside the system call the instruction makes.
    InKernel,
    /// The instruction faulted, or the thread is gone.
    Stuck,
}

impl Tracee {
    /// Resumes; `action` says what each thread does, `others` what new threads do. Returns at once
    /// with a stop if one is already there to be reported; then nothing has moved.
    pub(crate) fn resume(
        &mut self,
        action: impl Fn(Tid) -> Action,
        others: Action,
    ) -> Option<Stop> {
        self.default_action = others.without_signal();
        self.going = true;
        self.eventful = false;
        self.step_reset_at = None;
        if self.end.is_some() {
            return self.take_stop();
        }
        let mut stayed = Vec::new();
        for (tid, thread) in &mut self.threads {
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
        self.take_signals();
        self.drop_stale();
        if let Some(stop) = self.take_stop().or_else(|| self.due_interrupt()) {
            return Some(stop);
        }
        if !self.jump_pads.is_empty() || self.subscriptions.want_fast() {
            // Where a trap cannot be, nothing can be executed.
            let _ = self.complete_probes();
        }
        self.step_over_traps();
        if let Some(stop) = self.take_stop() {
            return Some(stop);
        }
        self.let_live();
        self.halt_ends(monotonic_ns());
        self.start_all();
        None
    }

    /// The client's interrupt, if it is due to one of the threads that are to go: nobody moves, and signals are kept.
    fn due_interrupt(&mut self) -> Option<Stop> {
        if !self.interrupt_due {
            return None;
        }
        let current = self.current();
        let goes = |(tid, thread): (&Tid, &Thread)| {
            let stands = matches!(thread.state, State::Stopped(_));
            (stands && thread.action != Action::Hold).then_some(*tid)
        };
        let going: Vec<Tid> = self.threads.iter().filter_map(goes).collect();
        let tid = *going
            .iter()
            .find(|tid| **tid == current)
            .or(going.first())?;
        self.going = false;
        let stop = Stop::Thread(tid, Cause::Interrupt);
        self.show(&stop);
        Some(stop)
    }

    /// Once it has been resumed, a program that we started is no longer ours alone, and outlives us.
    pub(super) fn let_live(&mut self) {
        if !self.attached && !self.resumed {
            for (tid, thread) in &self.threads {
                let _ = ptrace::set_options(*tid, thread.options());
            }
        }
        self.resumed = true;
    }

    /// Drops what is no longer true: hits of traps that have been removed, steps nobody waits for.
    pub(super) fn drop_stale(&mut self) {
        for thread in self.threads.values_mut() {
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
            let (traps, jumps, watches) = (&self.breakpoints, &self.jump_pads, &self.watches);
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

    /// Moves the signals that the client wants delivered to where they are delivered from.
    pub(super) fn take_signals(&mut self) {
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

    pub(super) fn step_over_traps(&mut self) {
        if self.breakpoints.is_empty() && self.jump_pads.is_empty() {
            return;
        }
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            let Some(at) = self.answered_trap(tid) else {
                continue;
            };
            // It may have come here by a step.
            let jump = self.jump_pads.is_planted(at);
            if !self.forget_hit(tid, at) && (jump || self.breakpoints.probed(at)) {
                self.probe_hit(tid, at);
                if self.is_held(tid) {
                    self.remember_hit(tid, at);
                    continue;
                }
            }
            if self.displace(tid, at) {
                // It is where it was shown until it goes.
                continue;
            }
            if jump {
                self.remember_hit(tid, at);
                continue;
            }
            match self.step_over(tid, at) {
                Over::Stepped => self.stepped(tid),
                Over::InKernel => {
                    self.call_stop(tid);
                }
                Over::Stuck => self.eventful = true,
            }
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.shown_at = None;
            }
        }
    }

    /// Where the thread stands on a trap that it is to be taken over.
    pub(super) fn answered_trap(&mut self, tid: Tid) -> Option<u64> {
        if self.is_held(tid) {
            return None;
        }
        let thread = self.threads.get_mut(&tid)?;
        let at = thread.shown_at?;
        // A handler for the instruction's own fault comes before its next attempt; so does one that a step is to
        // lead to.
        let first = |info: &SignalInfo| info.is_fault() || thread.action.is_step();
        let due = thread.action != Action::Hold
            && !thread.deliver.front().is_some_and(first)
            && (self.breakpoints.planted(at)
                || self.breakpoints.probed(at)
                || self.jump_pads.is_planted(at))
            && thread.stopped()?.pc() == Ok(at)
            && !arch::goes_back(thread.stopped()?.general().ok()?);
        due.then_some(at)
    }

    /// A thread has executed one instruction of those it is to execute.
    pub(super) fn stepped(&mut self, tid: Tid) {
        self.record_step(tid);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let done = match thread.action {
            Action::Step(_) => true,
            Action::StepWhileIn(start, end) => {
                let pc = thread.stopped().and_then(|stopped| stopped.pc().ok());
                pc.is_none_or(|pc| pc < start || pc >= end)
            }
            _ => false,
        };
        if done {
            thread.pending.push_back(Pending::Step);
            self.eventful = true;
        }
    }

    /// Takes those back into their system calls that a halt has interrupted there, if a trap is at the call: each would execute that
    /// again, and whoever is taken past it interrupts all others. Everybody must be stopped.
    fn enter_again(&mut self) {
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
        for (tid, at) in found {
            if self.breakpoints.stands(at) && self.step_over(tid, at) == Over::Stuck {
                self.eventful = true;
            }
        }
    }

    /// Executes the instruction under the trap at `at` in its place. Every other thread must be stopped.
    pub(super) fn step_over(&mut self, tid: Tid, at: u64) -> Over {
        if self.emulate(tid, at) {
            return Over::Stepped;
        }
        let code = self.code(at);
        let code = &code[..];
        let places = self.next_places(tid);
        let general = self.stopped(tid).and_then(|s| s.general().ok());
        let calls = general.filter(|general| arch::is_system_call(code, general));
        let before = calls.map(<[u8]>::to_vec);
        let enters_kernel = before.is_some();
        let kernel_steps = arch::CAN_STEP && places.is_empty();
        let by_traps = !(enters_kernel || kernel_steps);
        if by_traps && places.iter().any(|(place, _)| *place == at) {
            // It leads to itself.
            return Over::Stepped;
        }
        let motion = match (enters_kernel, by_traps) {
            (true, _) => Motion::ToSystemCall,
            (false, true) => Motion::Continue,
            (false, false) => Motion::Step,
        };
        // What else is reported meanwhile must not set anybody going.
        let halting = std::mem::replace(&mut self.halting, true);
        self.breakpoints.lift(&self.memory, at);
        let planted = if by_traps {
            self.plant_all(&places)
        } else {
            Vec::new()
        };
        let over = self.execute(tid, motion);
        if over == Over::InKernel
            && let Some(thread) = self.threads.get_mut(&tid)
        {
            thread.after_call = Some(places);
            thread.entered = before.map(|before| (at, before));
        }
        for place in planted {
            self.breakpoints.remove_step(&self.memory, place);
        }
        self.breakpoints.replant(&self.memory, at);
        self.halting = halting;
        over
    }

    pub(super) fn execute(&mut self, tid: Tid, motion: Motion) -> Over {
        loop {
            let Some(thread) = self.threads.get_mut(&tid) else {
                return Over::Stuck;
            };
            thread.go(motion, 0);
            let Some(status) = self.report_of(tid) else {
                return Over::Stuck;
            };
            match status {
                Status::Signal(libc::SIGTRAP) if !self.is_sent_trap(tid) => {
                    self.mark_stopped(tid, At::Signal);
                    if let Ok(info) = ptrace::signal_info(tid) {
                        self.watch_trap(tid, &info);
                    }
                    return Over::Stepped;
                }
                Status::Syscall => {
                    self.mark_stopped(tid, At::InCall);
                    return Over::InKernel;
                }
                Status::Signal(_) => {
                    // Kept for later, so that the instruction is executed before any handler; but
                    // a fault is the instruction's own doing.
                    let fault = ptrace::signal_info(tid).is_ok_and(|info| info.is_fault());
                    self.handle(tid, status);
                    if fault {
                        return Over::Stuck;
                    }
                }
                Status::Held(_) => self.handle(tid, status),
                _ => {
                    self.handle(tid, status);
                    return Over::Stuck;
                }
            }
        }
    }

    /// Whether the `SIGTRAP` a thread stopped with was sent by somebody.
    pub(super) fn is_sent_trap(&self, tid: Tid) -> bool {
        ptrace::signal_info(tid).is_ok_and(|info| !info.is_raised_trap())
    }

    pub(super) fn mark_stopped(&mut self, tid: Tid, at: At) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.now_stopped(tid, at);
            if at != At::InCall {
                self.avoid_restart_call(tid);
            }
        }
    }

    /// Lets every thread that is to run run: at once, if one is to step, as its traps must be planted before.
    pub(super) fn start_all(&mut self) {
        if self.nobody_runs() {
            self.enter_again();
        }
        let steps = self.threads.values().any(Thread::steps);
        self.starting = steps.then(Vec::new);
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            self.start_one(tid);
        }
        for (tid, motion, signal) in self.starting.take().into_iter().flatten() {
            self.go_at_once(tid, motion, signal);
        }
    }

    /// Lets one stopped thread do what it is to do, if it is to do anything.
    pub(super) fn start_one(&mut self, tid: Tid) {
        if self.is_inside_jump(tid) {
            return;
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let (State::Stopped(stopped), true) = (&thread.state, thread.action != Action::Hold) else {
            return;
        };
        if self.non_stop && !thread.pending.is_empty() {
            // To be reported first.
            return;
        }
        if self.holds.contains_key(&tid) {
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
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if !thread.deliver.is_empty()
            && through.is_some()
            && let Some(Ok(pc)) = thread.stopped().map(|stopped| stopped.pc())
        {
            self.remember_hit(tid, pc);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
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
            self.requeue(tid);
            self.go(tid, motion, 0);
        }
        self.requeue(tid);
    }

    /// Sends a thread the signals it is still to get; they will come back as stops and pass.
    fn requeue(&mut self, tid: Tid) {
        let pid = self.pid();
        if let Some(thread) = self.threads.get_mut(&tid) {
            for info in std::mem::take(&mut thread.deliver) {
                thread.returning.push(info.signal());
                let _ = ptrace::queue_signal(pid, tid, &info);
            }
        }
    }
}

/// Where `si_pid` stands: after three ints, aligned as the union that holds it.
const SENDER: usize = 12_usize.next_multiple_of(align_of::<usize>());

/// A signal as kill(2) would send it.
fn plain_signal(signal: i32) -> SignalInfo {
    let mut bytes = [0; ptrace::SIGINFO_SIZE];
    bytes[..4].copy_from_slice(&signal.to_ne_bytes());
    // si_code: SI_USER is 0.
    let ours = std::process::id().to_ne_bytes();
    bytes[SENDER..SENDER + 4].copy_from_slice(&ours);
    SignalInfo::from_bytes(bytes)
}
