//! Functions that the first entry of a PLT jumps to (`_dl_runtime_resolve`). What that has pushed is above
//! the stack pointer they start with: they take it off before they jump away, which no other function does
//! that begins by making room. Where calls leave the return address in a register, the PLT needs that
//! register itself, and the return address is among what was pushed.
//!
//! ```text
//! ARM PLT 0:     push {lr}; ldr lr, ...; ldr pc, [lr, #8]!
//! resolver:      push {r0-r4}; ...; bl fixup; ...; pop {r0-r4, lr}; bx ip
//! x86-64 PLT 0:  push link_map(%rip); jmp *resolver(%rip), after the entry's own push of an index
//! resolver:      push %rbx; ...; call fixup; ...; mov (%rsp), %rbx; add $24, %rsp; jmp *%r11
//! ```

use super::flow::Function;
use super::machine::Machine;
use super::state::State;

/// The most that is pushed on the way, in bytes.
const MAX_STACK_ARGUMENTS: i32 = 64;

/// States that `function`, followed as one that is called, may start with instead.
pub(super) fn entries(machine: &'static Machine, function: &Function) -> Vec<State> {
    let above = function.above.filter(|&above| above <= MAX_STACK_ARGUMENTS);
    let above = above.filter(|_| function.deepens).unwrap_or(0);
    if !machine.link {
        // The return address is above all of it, where calls leave it.
        let pushed = (above > 0).then(|| above + machine.entry_depth);
        let entry = pushed.map(|depth| State::pushed(machine, depth, -machine.slot));
        return entry.into_iter().collect();
    }
    let slots = (0..above).step_by(machine.slot as usize);
    slots
        .map(|at| State::pushed(machine, above, at - above))
        .collect()
}

/// Whether `function`, followed from one of these, is one.
pub(super) fn is_one(machine: &Machine, function: &Function) -> bool {
    function.clean && (function.relinks || !machine.link)
}
