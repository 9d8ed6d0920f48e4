//! Fast tracepoints: a jump in the program's text leads to code that notes the hit in memory of the
//! program's.
//!
//! The [`planner`] decides what a hit notes. A [`jump_pad`] is the jump and the code. The [`pool`]
//! keeps hits until they are drained, and [`recorded_hit`] reads one. [`placement`] says when jumps
//! are planted.

pub(crate) mod jump_pad;
pub(crate) mod placement;
pub(crate) mod planner;
pub(crate) mod pool;
pub(crate) mod recorded_hit;

use std::collections::HashMap;

use crate::sys::Tid;
use crate::sys::memory::Memory;

use jump_pad::JumpPads;
use placement::JumpPlacement;

/// The fast tracepoints in one memory.
#[derive(Default)]
pub(crate) struct FastTracepoints {
    pub(crate) jump_pads: JumpPads,
    pub(crate) placement: JumpPlacement,
    /// The thread pointers of the threads that collectors know.
    registered: HashMap<Tid, u64>,
    /// Threads whose program counter is inside a jump, and that jump's address. They must not go
    /// on.
    inside_jumps: Vec<(Tid, u64)>,
}

/// A thread as collectors need to know it.
pub(crate) struct Registration {
    /// Where the thread's own data are.
    pub(crate) pointer: u64,
    /// Where the kernel keeps the number of its processor.
    pub(crate) processor: Option<u64>,
    /// The lowest address and the end of its stack.
    pub(crate) stack: (u64, u64),
}

impl FastTracepoints {
    /// Tells the collectors of a thread.
    pub(crate) fn register(&mut self, memory: &Memory, tid: Tid, thread: &Registration) {
        let former = self.registered.insert(tid, thread.pointer);
        let Some(pool) = self.jump_pads.pool() else {
            return;
        };
        if let Some(former) = former {
            pool.leave(memory, former);
        }
        pool.enter(memory, tid, thread);
    }

    /// Whether collectors know this thread.
    pub(crate) fn is_registered(&self, tid: Tid) -> bool {
        self.registered.contains_key(&tid)
    }

    /// Whether collectors know this thread as it is, with this thread pointer and on a stack that
    /// contains `sp`. Then it stopped because there was no free slot for its hit.
    pub(crate) fn is_known(&self, memory: &Memory, tid: Tid, pointer: u64, sp: u64) -> bool {
        let pool = self.jump_pads.pool();
        self.registered.get(&tid) == Some(&pointer)
            && pool.is_some_and(|pool| pool.knows(memory, pointer, sp))
    }

    /// Whether collectors know no thread.
    pub(crate) fn has_no_registered(&self) -> bool {
        self.registered.is_empty()
    }

    /// A thread has ended.
    pub(crate) fn unregister(&mut self, memory: &Memory, tid: Tid) {
        if let (Some(pointer), Some(pool)) = (self.registered.remove(&tid), self.jump_pads.pool()) {
            pool.leave(memory, pointer);
        }
    }

    /// A thread begins that has this thread pointer. Its former owner has ended, even if that was
    /// not reported yet, or shares it and is registered again later.
    pub(crate) fn unregister_pointer(&mut self, memory: &Memory, pointer: u64) {
        let known = self.registered.iter().find(|(_, known)| **known == pointer);
        if let Some(former) = known.map(|(tid, _)| *tid) {
            self.unregister(memory, former);
        }
    }

    /// Another process runs in this memory: two threads may have the same thread pointer.
    pub(crate) fn unregister_all(&mut self, memory: &Memory) {
        self.registered.clear();
        if let Some(pool) = self.jump_pads.pool() {
            pool.leave_all(memory);
        }
    }

    /// The collectors have a new pool, in which no thread is registered.
    pub(crate) fn forget_registered(&mut self) {
        self.registered.clear();
    }

    /// A thread stands inside the jump at this address.
    pub(crate) fn add_inside_jump(&mut self, tid: Tid, at: u64) {
        self.inside_jumps.push((tid, at));
    }

    /// Whether a thread stands inside a jump.
    pub(crate) fn is_inside_jump(&self, tid: Tid) -> bool {
        self.inside_jumps.iter().any(|(other, _)| *other == tid)
    }

    /// Whether any thread does.
    pub(crate) fn any_inside_jump(&self) -> bool {
        !self.inside_jumps.is_empty()
    }

    /// The addresses of jumps that threads stand inside. They are about to be removed.
    pub(crate) fn take_occupied_jumps(&mut self) -> Vec<u64> {
        let inside = std::mem::take(&mut self.inside_jumps);
        inside.into_iter().map(|(_, at)| at).collect()
    }

    /// Forgets everything: the memory is gone.
    pub(crate) fn forget(&mut self) {
        self.jump_pads.forget();
        self.registered.clear();
        self.inside_jumps.clear();
    }
}
