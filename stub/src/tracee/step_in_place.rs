//! Executes the instruction under a trap in place, with the trap removed and every other thread
//! stopped.
//!
//! **When a trap is stepped over.** The client has seen a thread stop at an address, and the thread
//! is still there. Then the trap has been handled: if a breakpoint is there, resuming executes the
//! instruction under it. If a thread was merely stopped there, the client has not seen it at the
//! breakpoint. The thread must execute the trap, or a hit would be lost.
//!
//! An instruction that enters the kernel may wait there for a stopped thread. So the stub lets the
//! thread go only to the kernel's entry, and then inserts the trap again. Most instructions need
//! none of this: see `step_over`.

use crate::arch;
use crate::ptrace::action::Action;
use crate::ptrace::resume::Executed;
use crate::ptrace::thread::{Motion, Pending};
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::wait::Status;

use super::Tracee;

/// The end of a step over a trap.
#[derive(PartialEq, Eq)]
pub(super) enum Over {
    /// The instruction has been executed.
    Stepped,
    /// The thread is inside the instruction's system call.
    InKernel,
    /// The instruction faulted, or the thread is gone.
    Stuck,
}

impl Tracee {
    /// Takes threads past the traps that have been handled. Every thread must be stopped.
    pub(super) fn step_over_traps(&mut self) {
        if self.breakpoints.is_empty() && self.tracepoints.fast.jump_pads.is_empty() {
            return;
        }
        let tids: Vec<Tid> = self.process.threads.keys().copied().collect();
        for tid in tids {
            let Some(at) = self.handled_trap(tid) else {
                continue;
            };
            // The thread may have come here by a step, which is a hit not handled yet.
            let jump = self.tracepoints.fast.jump_pads.is_planted(at);
            if !self.forget_hit(tid, at) && (jump || self.breakpoints.probed(at)) {
                self.probe_hit(tid, at);
                if self.subscriptions.is_held(tid) {
                    self.remember_hit(tid, at);
                    continue;
                }
            }
            if self.displace(tid, at) {
                // The thread stays at the address that the client has seen until it resumes.
                continue;
            }
            if jump {
                self.remember_hit(tid, at);
                continue;
            }
            match self.step_over(tid, at) {
                Over::Stepped => self.stepped(tid),
                Over::InKernel => {
                    self.system_call(tid);
                }
                Over::Stuck => self.process.run.set_event(),
            }
            if let Some(thread) = self.process.threads.get_mut(&tid) {
                thread.shown_at = None;
            }
        }
    }

    /// The address of the trap that a thread is at, if the trap has been handled.
    pub(super) fn handled_trap(&mut self, tid: Tid) -> Option<u64> {
        if self.subscriptions.is_held(tid) {
            return None;
        }
        let thread = self.process.threads.get_mut(&tid)?;
        let at = thread.shown_at?;
        // If the instruction itself faulted, the handler comes before the next attempt. A handler
        // that a step leads to comes first, too.
        let first = |info: &SignalInfo| info.is_fault() || thread.action.is_step();
        let due = thread.action != Action::Hold
            && !thread.deliver.front().is_some_and(first)
            && (self.breakpoints.planted(at)
                || self.breakpoints.probed(at)
                || self.tracepoints.fast.jump_pads.is_planted(at))
            && thread.stopped()?.pc() == Ok(at)
            && !arch::goes_back(thread.stopped()?.general().ok()?);
        due.then_some(at)
    }

    /// Handles a thread's execution of one instruction: the step may end here.
    pub(super) fn stepped(&mut self, tid: Tid) {
        self.record_step(tid);
        let Some(thread) = self.process.threads.get_mut(&tid) else {
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
            self.process.run.set_event();
        }
    }

    /// Returns threads to system calls under traps, if a halt has interrupted these calls.
    /// Otherwise each would execute its call again, and taking it past the trap would interrupt all
    /// other threads. Every thread must be stopped.
    pub(super) fn enter_interrupted_calls(&mut self) {
        for (tid, at) in self.process.interrupted_calls() {
            if self.breakpoints.stands(at) && self.step_over(tid, at) == Over::Stuck {
                self.process.run.set_event();
            }
        }
    }

    /// Executes the instruction under the trap at `at` in place. Every other thread must be
    /// stopped.
    pub(super) fn step_over(&mut self, tid: Tid, at: u64) -> Over {
        if self.emulate(tid, at) {
            return Over::Stepped;
        }
        let code = self.code(at);
        let code = &code[..];
        let places = self.next_places(tid);
        let general = self.process.stopped(tid).and_then(|s| s.general().ok());
        let calls = general.filter(|general| arch::is_system_call(code, general));
        let before = calls.map(<[u8]>::to_vec);
        let enters_kernel = before.is_some();
        let kernel_steps = arch::CAN_STEP && places.is_empty();
        let by_traps = !(enters_kernel || kernel_steps);
        if by_traps && places.iter().any(|(place, _)| *place == at) {
            // The instruction jumps to itself.
            return Over::Stepped;
        }
        let motion = match (enters_kernel, by_traps) {
            (true, _) => Motion::ToSystemCall,
            (false, true) => Motion::Continue,
            (false, false) => Motion::Step,
        };
        // Reports that arrive meanwhile must not resume other threads.
        let blocked = self.process.run.block_starts();
        self.breakpoints.lift(&self.process.memory, at);
        let planted = if by_traps {
            self.plant_all(&places)
        } else {
            Vec::new()
        };
        let over = self.execute(tid, motion);
        if over == Over::InKernel
            && let Some(thread) = self.process.threads.get_mut(&tid)
        {
            thread.after_call = Some(places);
            thread.entered = before.map(|before| (at, before));
        }
        for place in planted {
            self.breakpoints.remove_step(&self.process.memory, place);
        }
        self.breakpoints.replant(&self.process.memory, at);
        self.process.run.unblock_starts(blocked);
        over
    }

    /// Lets a stopped thread execute one instruction.
    pub(super) fn execute(&mut self, tid: Tid, motion: Motion) -> Over {
        loop {
            let status = match self.process.execute(tid, motion) {
                Executed::Trap => {
                    if let Ok(info) = ptrace::signal_info(tid) {
                        self.process.watch_trap(tid, &info);
                    }
                    return Over::Stepped;
                }
                Executed::SystemCall => return Over::InKernel,
                Executed::Gone => return Over::Stuck,
                Executed::Report(status) => status,
            };
            // A signal is kept for later, so that the instruction is executed before a handler
            // runs. A fault comes from the instruction itself.
            let goes_on = match status {
                Status::Signal(_) => !ptrace::signal_info(tid).is_ok_and(|info| info.is_fault()),
                Status::Held(_) => true,
                _ => false,
            };
            self.handle(tid, status);
            if !goes_on {
                return Over::Stuck;
            }
        }
    }
}
