//! Functions that find their return address on the stack, although calls leave it in a register: those that the first
//! entry of a PLT jumps to, which needs the link register itself (`_dl_runtime_resolve`). No function loads the link
//! register from above its own frame and jumps away with the stack pointer there, but one that takes off what was pushed
//! on the way to it: that is what they are known by.
//!
//! ```text
//! PLT 0:     push {lr}; ldr lr, ...; ldr pc, [lr, #8]!
//! resolver:  push {r0-r4}; ...; bl fixup; ...; pop {r0-r4, lr}; bx ip
//! ```

use super::flow::Function;
use super::machine::Machine;
use super::state::State;

/// The most that is pushed on the way, in bytes.
const MOST: i32 = 64;

/// States that `function`, followed as one that is called, may start with instead.
pub(super) fn entries(machine: &'static Machine, function: &Function) -> Vec<State> {
    let above = function.above.filter(|&above| above <= MOST);
    let above = above.filter(|_| function.deepens).unwrap_or(0);
    let slots = (0..above).step_by(machine.slot as usize);
    slots
        .map(|at| State::pushed(machine, above, at - above))
        .collect()
}

/// Whether `function`, followed from one of these, is one.
pub(super) fn is_one(function: &Function) -> bool {
    function.clean && function.relinks
}
