//! Code that switches to another stack, such as `longjmp` and `setcontext`.
//!
//! Once the stack pointer points to the other stack, the frames of the old one are gone (AAPCS
//! 6.2.1.2: nothing below the stack pointer lasts), and the caller is at the address that this code
//! will return to. Only the code ahead shows that address, so this is apart from [`super::flow`].

use super::effect::{Effect, Flow, Instruction};
use super::listing::{ALWAYS, Listing};
use super::machine::Machine;

/// Number of instructions ahead in which to look for the return.
const LOOKAHEAD: usize = 48;

/// The caller after a stack switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackSwitch {
    /// Register with the address that will be returned to.
    pub(super) ra: u8,
    /// How far the stack pointer is below its value at the return.
    pub(super) depth: i32,
}

/// Looks ahead from `at`. `None` if the code does not return through a register that is already
/// set.
pub(super) fn find(listing: &Listing, machine: &Machine, at: u32) -> Option<StackSwitch> {
    let mut path: Vec<&Instruction> = Vec::new();
    let mut at = at;
    let mut ra = loop {
        let instruction = listing.at(at).filter(|_| path.len() < LOOKAHEAD)?;
        let always = instruction.condition == ALWAYS;
        match instruction.flow {
            Flow::Return if always && instruction.effects().is_empty() => break machine.ra,
            Flow::Indirect(Some(register)) if always && instruction.effects().is_empty() => {
                break register;
            }
            Flow::Next | Flow::Branch(_) | Flow::IfZero { .. } => {
                at += u32::from(instruction.len);
            }
            Flow::Jump(target) if always => at = listing.position(target)?,
            // Both paths end the same way: control only skips loads of further registers.
            Flow::Jump(_) => at += u32::from(instruction.len),
            _ => return None,
        }
        path.push(instruction);
    };
    let mut depth = 0i32;
    for instruction in path.iter().rev() {
        for &effect in instruction.effects().iter().rev() {
            match effect {
                Effect::Add { to, from, by } if to == ra => {
                    if by != 0 || instruction.condition != ALWAYS {
                        return None;
                    }
                    ra = from;
                }
                Effect::Add { to, from, by } if to == machine.sp => {
                    if from != to {
                        return None;
                    }
                    depth = depth.checked_add(by)?;
                }
                effect if effect.writes() & (1 << ra | 1 << machine.sp) != 0 => return None,
                _ => {}
            }
        }
    }
    Some(StackSwitch { ra, depth })
}
