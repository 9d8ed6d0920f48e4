//! Single steps by traps, for cases in which the kernel has no single steps or makes too small
//! ones: the stub inserts traps at all addresses that the next instruction can lead to.
//!
//! While one thread steps in this way, others may run and hit its traps. The stub takes them past
//! these traps while all threads are halted. It inserts and removes such traps only then, because
//! ARM allows nothing else (`arch::TEXT_MAY_CHANGE`). So all threads that are to run start
//! together, and the traps of a finished step stay until the next halt.

use std::sync::OnceLock;

use crate::arch;
use crate::sys::ptrace;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;
use crate::ptrace::thread::{At, Awaited, Motion, Thread};

/// Maximum number of steps for one thread before others have their turn.
const MAX_BATCH_STEPS: usize = 16;

/// A request to take a thread past a trap while every other thread is stopped.
pub(super) struct StepOverRequest {
    pub(super) tid: Tid,
    pub(super) at: u64,
    /// The hit has been handled, so a client's breakpoint at `at` is passed too.
    pub(super) planted: bool,
}

/// Threads that wait until every thread is stopped.
#[derive(Default)]
pub(super) struct StepQueue {
    /// Threads at traps that do not concern the client.
    pub(super) requests: Vec<StepOverRequest>,
    /// A thread has a step to make that can only begin while every thread is stopped.
    pub(super) needs_halt: bool,
}

impl Tracee {
    /// Prepares one step. `None` if it can only be made while all threads are halted.
    pub(super) fn step_motion(&mut self, tid: Tid, signal: i32) -> Option<Motion> {
        self.end_step(tid);
        let places = self.next_places(tid);
        if arch::CAN_STEP && (places.is_empty() || signal != 0) {
            return Some(Motion::Step);
        }
        let halted = self.process.no_thread_runs();
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return Some(Motion::Continue);
        };
        let in_call = thread.after_call.is_some();
        let Some(stopped) = thread.stopped() else {
            return Some(Motion::Continue);
        };
        let pc = stopped.pc().unwrap_or(0);
        let delivers = signal != 0 && stopped.at() == At::Signal;
        if delivers {
            // After the kernel has set the handler up, it stops the thread again before the handler
            // executes anything.
            let before = stopped.general().map(<[u8]>::to_vec).unwrap_or_default();
            thread.awaited = Some(Awaited::Handler(before));
            let _ = ptrace::interrupt(tid);
        } else if !in_call && places.iter().any(|(place, _)| *place == pc) {
            thread.awaited = Some(Awaited::Anything);
            let _ = ptrace::interrupt(tid);
        } else if !halted && !places.is_empty() {
            return None;
        } else {
            // Otherwise the thread could hit a trap of its last step at once.
            if halted && !self.process.shares_memory() {
                self.breakpoints.remove_retired_steps(&self.process.memory);
            }
            let planted = self.plant_all(&places);
            if let Some(thread) = self.process.threads.get_mut(&tid) {
                thread.after_call = None;
                thread.step_traps = planted;
            }
        }
        Some(Motion::Continue)
    }

    /// The addresses that the thread's next instruction can lead to. Empty if the kernel can make
    /// the step.
    pub(super) fn next_places(&mut self, tid: Tid) -> Vec<(u64, usize)> {
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return Vec::new();
        };
        if let Some(places) = &thread.after_call {
            return places.clone();
        }
        let general = thread.stopped().and_then(|s| s.general().ok());
        let Some(general) = general.map(<[u8]>::to_vec) else {
            return Vec::new();
        };
        arch::next_places(&general, &|address, into| {
            self.read_memory(address, into) == Ok(into.len())
        })
    }

    /// Inserts the traps that end a step. Returns their addresses, without those that cannot be
    /// written, because nothing can be executed there either.
    pub(super) fn plant_all(&mut self, places: &[(u64, usize)]) -> Vec<u64> {
        if self.process.has_untraced_child_inside() {
            return Vec::new();
        }
        let (breakpoints, memory) = (&mut self.breakpoints, &self.process.memory);
        let mut plant = |at, kind| breakpoints.plant_step(memory, at, kind).ok();
        places
            .iter()
            .filter_map(|(at, kind)| plant(*at, *kind).map(|()| *at))
            .collect()
    }

    /// Ends a thread's step: its traps are retired, to be removed at the next halt.
    pub(super) fn end_step(&mut self, tid: Tid) {
        if let Some(thread) = self.process.threads.get_mut(&tid) {
            self.breakpoints.retire_steps(&mut thread.step_traps);
        }
    }

    /// Removes the traps of all steps. Every thread must be stopped.
    pub(super) fn end_steps(&mut self) {
        self.step_queue.needs_halt = false;
        for thread in self.process.threads.values_mut() {
            self.breakpoints.retire_steps(&mut thread.step_traps);
        }
        self.breakpoints.remove_retired_steps(&self.process.memory);
    }

    /// Handles a trap that `tid` executed at `at`, where the client has no breakpoint for this
    /// thread. True if a step explains the trap.
    pub(super) fn step_trap(&mut self, tid: Tid, at: u64) -> bool {
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return true;
        };
        if thread.step_traps.contains(&at) {
            self.end_step(tid);
            self.step_made(tid);
            return true;
        }
        if self.breakpoints.planted(at) || self.breakpoints.probed(at) {
            return false;
        }
        if self.breakpoints.trapped(at) {
            self.step_queue.requests.push(StepOverRequest {
                tid,
                at,
                planted: false,
            });
            return true;
        }
        // The trap was removed before the report, and the thread still has to execute the
        // instruction there.
        if arch::TRAP_ADVANCE == 0 && !self.is_trap(at) {
            self.continue_unreported(tid);
            return true;
        }
        false
    }

    /// Handles the stop that [`step_motion`](Self::step_motion) requested for a thread. True if it
    /// was such a stop.
    pub(super) fn awaited_stop(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return false;
        };
        let Some(awaited) = thread.awaited.take() else {
            return false;
        };
        let made = match awaited {
            Awaited::Anything => true,
            Awaited::Handler(before) => {
                let now = thread.stopped().and_then(|stopped| stopped.general().ok());
                now.is_some_and(|now| !arch::unmoved(now, &before))
            }
        };
        if made {
            self.step_made(tid);
        } else {
            self.continue_unreported(tid);
        }
        true
    }

    fn step_made(&mut self, tid: Tid) {
        self.stepped(tid);
        for _ in 0..MAX_BATCH_STEPS {
            if !self.emulate_step(tid) {
                break;
            }
            self.stepped(tid);
        }
        if !self.process.run.has_event() {
            self.continue_unreported(tid);
        }
    }

    /// Emulates another step at once, if the thread has one to make. True if that was possible.
    fn emulate_step(&mut self, tid: Tid) -> bool {
        if !self.process.run.may_start() || self.process.run.has_event() {
            return false;
        }
        let Some(thread) = self.process.threads.get_mut(&tid) else {
            return false;
        };
        let steps = thread.steps() && thread.deliver.is_empty() && thread.pending.is_empty();
        let stopped = thread.stopped().filter(|_| steps);
        let Some((Ok(pc), Ok(before))) = stopped.map(|stopped| {
            let general = stopped.general().map(<[u8]>::to_vec);
            (stopped.pc(), general)
        }) else {
            return false;
        };
        if self.breakpoints.planted(pc) || self.breakpoints.probed(pc) {
            return false;
        }
        let places = self.next_places(tid);
        if places.is_empty() || !self.emulate(tid, pc) {
            return false;
        }
        let Some(stopped) = self.process.stopped(tid) else {
            return false;
        };
        let now = stopped.pc();
        if places.iter().any(|(place, _)| now == Ok(*place)) {
            return true;
        }
        // The emulated instruction is only the beginning of one step.
        let _ = stopped.set_general(&before);
        false
    }

    /// Takes threads past traps of other threads' steps, and starts the steps that have waited for
    /// a halt. Resumes all threads unless something else has happened.
    pub(super) fn step_over_queued(&mut self) {
        if self.step_queue.requests.is_empty() && !self.step_queue.needs_halt {
            return;
        }
        let since = monotonic_ns();
        self.halt();
        let requests = std::mem::take(&mut self.step_queue.requests);
        let probed = requests
            .iter()
            .find(|request| self.breakpoints.probed(request.at));
        let recording = || {
            self.process
                .threads
                .values()
                .find_map(|thread| thread.records_steps_from)
        };
        let probed = probed.map(|request| request.at).or_else(recording);
        for StepOverRequest { tid, at, planted } in requests {
            let stopped = self.process.threads.get_mut(&tid).and_then(Thread::stopped);
            if stopped.is_some_and(|stopped| stopped.pc() == Ok(at))
                && (planted || !self.breakpoints.planted(at))
            {
                match self.step_over(tid, at) {
                    super::step_in_place::Over::Stepped => self.stepped(tid),
                    super::step_in_place::Over::InKernel => {}
                    super::step_in_place::Over::Stuck => self.process.run.set_event(),
                }
            }
        }
        if self.process.run.goes_on() {
            self.start_all();
        }
        if let Some(at) = probed {
            let now = monotonic_ns();
            let at_once = self.process.threads.len().min(processors());
            self.cost(now, at, (now - since) * at_once as u64);
        }
    }
}

/// Number of threads that can run at the same time.
fn processors() -> usize {
    static NUMBER: OnceLock<usize> = OnceLock::new();
    *NUMBER.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
