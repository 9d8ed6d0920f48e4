//! Fast tracepoints: a jump in the program's text leads to code that records the hit in the
//! program's own memory.
//!
//! The [`planner`] decides what a hit records. A [`jump_pad`] is the jump and the code. The
//! [`pool`] holds hits until they are drained, and [`recorded_hit`] reads one. [`placement`]
//! decides when jumps are planted.

pub(crate) mod jump_pad;
pub(crate) mod placement;
pub(crate) mod planner;
pub(crate) mod pool;
pub(crate) mod recorded_hit;
mod tick_converter;

use std::collections::HashMap;

use crate::sys::Tid;
use crate::sys::memory::Memory;

use jump_pad::JumpPads;
use placement::JumpPlacement;

/// The fast tracepoints in one address space.
#[derive(Default)]
pub(crate) struct FastTracepoints {
    pub(crate) jump_pads: JumpPads,
    pub(crate) placement: JumpPlacement,
    /// Registered threads. Collectors know them, unless other threads have taken their places in
    /// the table.
    registered: HashMap<Tid, Registration>,
    /// Threads whose program counter is inside a jump, and that jump's address. They must not
    /// resume there.
    inside_jumps: Vec<(Tid, u64)>,
}

/// The data about a thread that collectors need.
#[derive(Clone)]
pub(crate) struct Registration {
    /// The thread pointer, which is the address of the thread's own data.
    pub(crate) pointer: u64,
    /// The address at which the kernel stores the number of the thread's processor (rseq).
    pub(crate) processor: Option<u64>,
    /// The lowest address and the end of the stack.
    pub(crate) stack: (u64, u64),
}

impl FastTracepoints {
    /// Registers a thread, so that collectors know it.
    pub(crate) fn register(&mut self, memory: &Memory, tid: Tid, thread: &Registration) {
        let former = self.registered.insert(tid, thread.clone());
        let Some(pool) = self.jump_pads.pool() else {
            return;
        };
        if let Some(former) = former {
            pool.leave(memory, former.pointer);
        }
        pool.enter(memory, tid, thread);
    }

    /// True if the thread is registered.
    pub(crate) fn is_registered(&self, tid: Tid) -> bool {
        self.registered.contains_key(&tid)
    }

    /// True if the thread is registered with this thread pointer and a stack that contains `sp`.
    /// Its collector then stopped because there was no free slot for the hit.
    pub(crate) fn is_known(&self, memory: &Memory, tid: Tid, pointer: u64, sp: u64) -> bool {
        let pool = self.jump_pads.pool();
        let registered = self.registered.get(&tid);
        registered.is_some_and(|thread| thread.pointer == pointer)
            && pool.is_some_and(|pool| pool.knows(memory, pointer, sp))
    }

    /// The stack of a registered thread with this thread pointer, if it contains `sp`.
    pub(crate) fn stack_of(&self, tid: Tid, pointer: u64, sp: u64) -> Option<(u64, u64)> {
        let registered = self.registered.get(&tid);
        let (low, end) = registered.filter(|thread| thread.pointer == pointer)?.stack;
        (low..end).contains(&sp).then_some((low, end))
    }

    /// True if no thread is registered.
    pub(crate) fn has_no_registered(&self) -> bool {
        self.registered.is_empty()
    }

    /// Removes a thread that has ended.
    pub(crate) fn unregister(&mut self, memory: &Memory, tid: Tid) {
        if let (Some(thread), Some(pool)) = (self.registered.remove(&tid), self.jump_pads.pool()) {
            pool.leave(memory, thread.pointer);
        }
    }

    /// Removes the registered thread with this thread pointer, because a new thread has it. The
    /// former owner has ended, even if the kernel has not reported that yet, or it shares the
    /// pointer and is registered again later.
    pub(crate) fn unregister_pointer(&mut self, memory: &Memory, pointer: u64) {
        let mut registered = self.registered.iter();
        let known = registered.find(|(_, known)| known.pointer == pointer);
        if let Some(former) = known.map(|(tid, _)| *tid) {
            self.unregister(memory, former);
        }
    }

    /// Removes all threads, because another process runs in this memory: two threads may then have
    /// the same thread pointer.
    pub(crate) fn unregister_all(&mut self, memory: &Memory) {
        self.registered.clear();
        if let Some(pool) = self.jump_pads.pool() {
            pool.leave_all(memory);
        }
    }

    /// Forgets all registrations, because the pool is new and has none.
    pub(crate) fn forget_registered(&mut self) {
        self.registered.clear();
    }

    /// Records that a thread is inside the jump at this address.
    pub(crate) fn add_inside_jump(&mut self, tid: Tid, at: u64) {
        self.inside_jumps.push((tid, at));
    }

    /// True if a thread is inside a jump.
    pub(crate) fn is_inside_jump(&self, tid: Tid) -> bool {
        self.inside_jumps.iter().any(|(other, _)| *other == tid)
    }

    /// True if any thread is inside a jump.
    pub(crate) fn any_inside_jump(&self) -> bool {
        !self.inside_jumps.is_empty()
    }

    /// Takes the addresses of jumps that threads are inside, so that the caller removes these
    /// jumps.
    pub(crate) fn take_occupied_jumps(&mut self) -> Vec<u64> {
        let inside = std::mem::take(&mut self.inside_jumps);
        inside.into_iter().map(|(_, at)| at).collect()
    }

    /// Forgets everything, because the address space is gone.
    pub(crate) fn forget(&mut self) {
        self.jump_pads.forget();
        self.registered.clear();
        self.inside_jumps.clear();
        self.placement.unsettle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_threads_stack_is_known() {
        let mut fast = FastTracepoints::default();
        let registration = Registration {
            pointer: 0x8700,
            processor: None,
            stack: (0x7000, 0x8700),
        };
        fast.registered.insert(Tid(7), registration);
        let stack = |tid, pointer, sp| fast.stack_of(Tid(tid), pointer, sp);
        assert_eq!(stack(7, 0x8700, 0x7100), Some((0x7000, 0x8700)));
        // Another thread, the number used again, and another stack of the thread.
        assert_eq!(stack(8, 0x8700, 0x7100), None);
        assert_eq!(stack(7, 0x9700, 0x7100), None);
        assert_eq!(stack(7, 0x8700, 0x9100), None);
    }
}
