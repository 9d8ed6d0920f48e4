//! Code that leaves its stack for another: `longjmp`, `setcontext`. Once the stack pointer is the other stack's, the frames
//! of the old one are gone (AAPCS 6.2.1.2: nothing below the stack pointer lasts), and the caller is where this code will
//! return to. That is known by the code ahead, not behind: hence apart from [`super::flow`].

use super::effect::{Effect, Flow, Instruction};
use super::listing::{ALWAYS, Listing};
use super::machine::Machine;

/// How far ahead the return is looked for, in instructions.
const AHEAD: usize = 48;

/// Where control is and will be, seen from behind the instruction at which the stack pointer became another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackSwitch {
    /// Register that holds the address that will be returned to.
    pub(super) ra: u8,
    /// How far below its value at the return the stack pointer is.
    pub(super) depth: i32,
}

/// Look ahead from `at`. `None` if what lies there does not return through a register that is set by now.
pub(super) fn find(listing: &Listing, machine: &Machine, at: u32) -> Option<StackSwitch> {
    let mut path: Vec<&Instruction> = Vec::new();
    let mut at = at;
    let mut ra = loop {
        let instruction = listing.at(at).filter(|_| path.len() < AHEAD)?;
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
            // Either way it comes to the same: control skips what loads further registers.
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
