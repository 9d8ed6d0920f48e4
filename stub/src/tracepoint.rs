//! Tracepoints: definitions by clients, the data that a hit collects, and the limit on their cost.
//!
//! An [`experiment`] has tracepoint [`definition`]s, trace state [`variable`]s and a
//! [`frame_buffer`]. The [`budget`] pauses tracepoints that cost too much. [`fast`] tracepoints are
//! recorded without a stop, and the [`trap_handler`] handles traps in the program if the stub dies.
//! Nothing here needs threads or clients.

pub(crate) mod budget;
pub(crate) mod definition;
pub(crate) mod experiment;
pub(crate) mod fast;
pub(crate) mod frame_buffer;
pub(crate) mod stack_key;
pub(crate) mod trap_handler;
pub(crate) mod variable;

use std::collections::HashMap;

use crate::sys::Tid;

use budget::{Budget, HitCost};
use fast::FastTracepoints;
use stack_key::CodeMap;
use trap_handler::TrapHandler;

/// The state of tracepoints in one program.
#[derive(Default)]
pub(crate) struct Tracepoints {
    pub(crate) budget: Budget,
    pub(crate) fast: FastTracepoints,
    /// Handles traps in the program if the stub dies.
    pub(crate) trap_handler: TrapHandler,
    /// The stacks of threads that have hit tracepoints.
    pub(crate) stacks: Stacks,
    /// The executable mappings, which decide whether a word of a stack may be a return address.
    pub(crate) code_map: CodeMap,
    /// A handled hit whose cost is not counted yet.
    pub(crate) hit_cost: Option<HitCost>,
    /// A collector has asked the stub to drain.
    pub(crate) has_alarm: bool,
}

/// The lowest stack pointer seen, and the end of the stack, by thread.
pub(crate) type Stacks = HashMap<Tid, (u64, u64)>;

impl Tracepoints {
    /// Forgets everything planted, because the address space is gone.
    pub(crate) fn forget_planted(&mut self) {
        self.stacks.clear();
        self.code_map = CodeMap::default();
        self.fast.forget();
        self.trap_handler.forget();
    }
}
