//! Follows code from an address: the functions it may call, and whether it may return.
//!
//! Separate from `flow` because it follows no state. The question is what a thread can do next.
//! That needs only the control flow of a few functions, and in doubt the answer is "may do
//! anything".

use std::collections::BTreeSet;
use std::ops::Range;

use unspool_image::{Arch, Image};

use super::effect::{Flow, Target};
use super::{machine, text};

/// Maximum number of instructions that are followed for one answer.
const MAX_INSTRUCTIONS: usize = 20_000;

/// A called function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The function at this address, which may be a stub of the procedure linkage table.
    Code(Target),
    /// The function whose address is in this slot of the global offset table.
    Slot(u64),
}

/// Where control can go next, judged by the code of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Onward {
    /// Whether it may return to its caller, or jump to another function instead.
    pub returns: bool,
    /// Whether it has jumps or calls with unknown targets, or exceeds the limit.
    pub unknown: bool,
}

/// Follows code from an address on, within `range`. Calls `call` for each function that may be
/// called; its result says whether that function may return.
pub fn onward(
    image: &Image,
    from: Target,
    range: &Range<u64>,
    call: &mut dyn FnMut(Callee) -> bool,
) -> Onward {
    let mut found = Onward::default();
    let Some(machine) = machine::machine(image.arch()) else {
        found.unknown = true;
        return found;
    };
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    let mut open = vec![from.svma];
    while let Some(mut at) = open.pop() {
        loop {
            if !range.contains(&at) {
                // Control runs into another function.
                found.unknown = true;
                break;
            }
            if !seen.insert(at) {
                break;
            }
            let bytes = image.bytes_from(at).unwrap_or_default();
            let instruction = text::decode(machine, bytes, at, from.thumb);
            let Some(instruction) = instruction.filter(|_| seen.len() <= MAX_INSTRUCTIONS) else {
                found.unknown = true;
                return found;
            };
            let next = at + u64::from(instruction.len);
            // A T32 instruction in an IT block may not execute.
            let conditional = instruction.condition != super::listing::ALWAYS || from.thumb;
            let slot = slot(image.arch(), bytes, next);
            let mut jump = |target: Target, found: &mut Onward| {
                if range.contains(&target.svma) && target.thumb == from.thumb {
                    open.push(target.svma);
                } else if call(Callee::Code(target)) {
                    found.returns = true;
                }
            };
            let goes_on = match instruction.flow {
                Flow::Next => true,
                Flow::Jump(target) => {
                    jump(target, &mut found);
                    conditional
                }
                Flow::Branch(target) | Flow::IfZero { target, .. } => {
                    jump(target, &mut found);
                    true
                }
                Flow::Call(Some(target)) => call(Callee::Code(target)) || conditional,
                Flow::Call(None) => match slot {
                    Some(slot) => call(Callee::Slot(slot)),
                    None => {
                        found.unknown = true;
                        true
                    }
                },
                Flow::Return => {
                    found.returns = true;
                    conditional
                }
                Flow::Indirect(_) | Flow::Table(_) => {
                    match slot {
                        Some(slot) => found.returns |= call(Callee::Slot(slot)),
                        None => found.unknown = true,
                    }
                    conditional
                }
                Flow::Trap => conditional,
            };
            if !goes_on {
                break;
            }
            at = next;
        }
    }
    found
}

/// Slots and other words in which the dynamic linker stores addresses of the same file, with these
/// addresses; sorted.
pub fn relative_slots(image: &Image) -> Vec<(u64, u64)> {
    super::pointers::relocations(image)
}

/// The slot of x86-64's `call *slot(%rip)` and `jmp *slot(%rip)`: `ff 15 rel32` and `ff 25 rel32`,
/// possibly after a prefix (Intel SDM, CALL and JMP). `next` is the next instruction's address.
pub fn slot(arch: Arch, bytes: &[u8], next: u64) -> Option<u64> {
    if arch != Arch::X86_64 {
        return None;
    }
    let skip = usize::from(matches!(bytes.first(), Some(0xf2 | 0x67)));
    match bytes.get(skip..skip + 6)? {
        [0xff, 0x15 | 0x25, distance @ ..] => {
            let distance = i32::from_le_bytes(distance.try_into().ok()?);
            Some(next.wrapping_add_signed(distance.into()))
        }
        _ => None,
    }
}
