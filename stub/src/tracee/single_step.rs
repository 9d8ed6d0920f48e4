//! Single steps where the kernel makes none, or would make too small ones: a thread runs into traps
//! at all places where its next instruction can lead.
//!
//! While one thread steps in this way the others may run, and run into its traps; they are taken
//! past them while every thread is stopped. Such traps come and go only while all are halted: ARM
//! allows nothing else (`arch::TEXT_MAY_CHANGE`). So all that are to go are let go together, and
//! the traps of steps that are made stand until the next halt.

use std::sync::OnceLock;

use crate::arch;
use crate::sys::ptrace;
use crate::sys::{Tid, monotonic_ns};

use super::Tracee;
use crate::ptrace::thread::{At, Awaited, Motion, Thread};

/// The most steps that are made for a thread before others have their turn.
const MAX_BATCH_STEPS: usize = 16;

/// A thread that is to be taken past a trap while every other thread is stopped.
pub(super) struct StepOverRequest {
    pub(super) tid: Tid,
    pub(super) at: u64,
    /// Even if a client's breakpoint is there: the hit has been handled.
    pub(super) planted: bool,
}

/// Threads that wait until every thread is stopped.
#[derive(Default)]
pub(super) struct StepQueue {
    /// Threads at traps that are not for the client.
    pub(super) requests: Vec<StepOverRequest>,
    /// A thread is to make a step that can only begin then.
    pub(super) needs_halt: bool,
}

impl Tracee {
    /// Prepares one step. `None`: it cannot be made before all are halted.
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
            // The kernel stops it again when it has set the handler up, and before it executes
            // anything.
            let before = stopped.general().map(<[u8]>::to_vec).unwrap_or_default();
            thread.awaited = Some(Awaited::Handler(before));
            let _ = ptrace::interrupt(tid);
        } else if !in_call && places.iter().any(|(place, _)| *place == pc) {
            thread.awaited = Some(Awaited::Anything);
            let _ = ptrace::interrupt(tid);
        } else if !halted && !places.is_empty() {
            return None;
        } else {
            // Else the thread would run into the last of them at once.
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

    /// Where the thread's next instruction can lead; empty if the kernel's own step will do.
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

    /// Plants traps that end a step, and returns where. Where nothing can be planted nothing can be
    /// executed either.
    pub(super) fn plant_all(&mut self, places: &[(u64, usize)]) -> Vec<u64> {
        let (breakpoints, memory) = (&mut self.breakpoints, &self.process.memory);
        let mut plant = |at, kind| breakpoints.plant_step(memory, at, kind).ok();
        places
            .iter()
            .filter_map(|(at, kind)| plant(*at, *kind).map(|()| *at))
            .collect()
    }

    /// A thread's step is made: its traps are retired.
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

    /// A trap at `at` was executed by `tid`, and no client planted it there for this thread.
    /// Whether that explains the report.
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
        // Taken out between the trap and its report: the thread has the instruction before it
        // still.
        if arch::TRAP_ADVANCE == 0 && !self.is_trap(at) {
            self.continue_unreported(tid);
            return true;
        }
        false
    }

    /// The stop of a thread that [`step_motion`](Self::step_motion) asked to stop. Whether it was
    /// one.
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
            if !self.step_by_hand(tid) {
                break;
            }
            self.stepped(tid);
        }
        if !self.process.run.has_event() {
            self.continue_unreported(tid);
        }
    }

    /// Makes another step at once that takes no processor, if the thread is to go on with one.
    fn step_by_hand(&mut self, tid: Tid) -> bool {
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
        // It is but the beginning of what is one step.
        let _ = stopped.set_general(&before);
        false
    }

    /// Takes those who ran into others' traps past them, and has those step that have waited for a
    /// halt. If nothing else has happened, all go on.
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

/// How many threads can run at once.
fn processors() -> usize {
    static NUMBER: OnceLock<usize> = OnceLock::new();
    *NUMBER.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
