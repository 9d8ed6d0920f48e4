//! Threads that execute instructions one by one after a hit of a tracepoint, for these to be noted (gdb's `while-stepping`).
//!
//! Nobody else is stopped for it, and nothing that can happen to the thread is different: it runs into traps, gets signals, may end. To
//! the client it continues. The instruction under the trap is the first; where it is executed in a slot, that is done by
//! a step. A system call is not stepped over but followed to its end, which may be far: a step that waits in the
//! kernel would kill the program if the stub were killed.

use crate::arch;
use crate::probe::trace::Walk;
use crate::sys::Tid;

use super::interest::Seat;
use super::probing::set_of;
use super::process::Process;
use super::sparing::Uncounted;
use super::thread::At;

/// A tracepoint in a loop is hit on the way from an earlier hit, and both are noted. No thread is on more ways at once.
const MOST: usize = 1000;

impl Process {
    /// A thread has hit tracepoints, and is to be followed from there.
    pub(super) fn begin_walks(&mut self, tid: Tid, walks: Vec<(Seat, Walk)>) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            let room = MOST.saturating_sub(thread.walks.len());
            thread.walks.extend(walks.into_iter().take(room));
        }
    }

    /// A thread has executed an instruction.
    pub(super) fn walk(&mut self, tid: Tid) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|t| !t.walks.is_empty()) else {
            return;
        };
        let from = thread.walks_from();
        let mut walks = std::mem::take(&mut thread.walks);
        let Some((mut now, interests)) = self.now(tid) else {
            return;
        };
        let Ok(pc) = now.stopped.pc() else {
            return;
        };
        walks.retain_mut(|(seat, walk)| {
            let interest = interests.known(*seat);
            interest.is_some_and(|interest| interest.trace.step(walk, pc, set_of, &mut now))
        });
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.walks = walks;
        }
        self.uncounted = from.map(|at| Uncounted {
            at,
            draining: 0,
            is_step: true,
        });
    }

    /// The same, if it is at the end of a system call, and has not been called away from it.
    pub(super) fn walk_out_of_call(&mut self, tid: Tid) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.walks()) else {
            return;
        };
        let stopped = thread.stopped().filter(|s| s.at() != At::InCall);
        let general = stopped.and_then(|stopped| stopped.general().ok());
        if general.is_some_and(|general| !arch::was_interrupted(general)) {
            self.walk(tid);
        }
    }

    /// Whether a thread that is followed is about to enter the kernel, or is there.
    pub(super) fn walks_into_call(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.walks()) else {
            return false;
        };
        let Some(stopped) = thread.stopped() else {
            return false;
        };
        if stopped.at() == At::InCall {
            return true;
        }
        let (Ok(pc), Ok(general)) = (stopped.pc(), stopped.general().map(<[u8]>::to_vec)) else {
            return false;
        };
        arch::goes_back(&general) || arch::is_system_call(&self.code(pc), &general)
    }

    /// A thread is about to end, or has.
    pub(super) fn end_walks(&mut self, tid: Tid) {
        let thread = self.threads.get_mut(&tid);
        let walks = thread.map(|thread| std::mem::take(&mut thread.walks));
        for (seat, walk) in walks.unwrap_or_default() {
            if let Some(interest) = self.interests.known(seat) {
                interest.trace.end_walk(&walk);
            }
        }
    }

    /// Nobody is followed any more for a trace that has ended. Everybody is stopped.
    pub(super) fn drop_walks(&mut self) {
        for thread in self.threads.values_mut() {
            thread.walks.retain(|(seat, walk)| {
                let interest = self.interests.get(*seat);
                interest.is_some_and(|interest| interest.trace.is_for(walk))
            });
        }
    }
}
