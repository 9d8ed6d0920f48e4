//! Recognizes resolvers, which the first entry of a PLT jumps to (`_dl_runtime_resolve`).
//!
//! The words that the PLT has pushed lie above the stack pointer at their entry. They remove these
//! words before they jump away; no other function that begins by making room does that. On machines
//! with a link register the PLT overwrites it, so the return address is among the pushed words.
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

/// Maximum size of the words that the PLT pushes, in bytes.
const MAX_STACK_ARGUMENTS: i32 = 64;

/// Other entry states that `function` may have, judging by its result as a called function.
pub(super) fn entries(machine: &'static Machine, function: &Function) -> Vec<State> {
    let above = function.above.filter(|&above| above <= MAX_STACK_ARGUMENTS);
    let above = above.filter(|_| function.makes_room_first).unwrap_or(0);
    if !machine.link {
        // The return address is above the pushed words, where the call left it.
        let pushed = (above > 0).then(|| above + machine.entry_depth);
        let entry = pushed.map(|depth| State::pushed(machine, depth, -machine.slot));
        return entry.into_iter().collect();
    }
    let slots = (0..above).step_by(machine.slot as usize);
    slots
        .map(|at| State::pushed(machine, above, at - above))
        .collect()
}

/// Whether the result for one of these entry states shows a resolver.
pub(super) fn is_resolver(machine: &Machine, function: &Function) -> bool {
    function.balanced && (function.restores_link || !machine.link)
}
