//! What depends on the flags. Behind an instruction that is executed under a condition (`popcc {r8}`) the stack pointer is
//! at one of two places until the paths part (`bcc`), and the flags, which a snapshot has, say at which. Apart from
//! the state, which knows nothing of flags, because only ARM has such code.

use super::effect::{Effect, Flow, Instruction};
use super::state::leb128;
use crate::registers::FLAGS;

/// Where the stack pointer is, relative to the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Either {
    /// ARM's condition code.
    pub(super) condition: u8,
    /// If it holds.
    pub(super) held: i32,
    /// If not.
    pub(super) not: i32,
}

impl Either {
    /// The CFA as an expression of the stack pointer, register `sp`, and the flags:
    /// `sp - not + holds * (not - held)`
    pub(super) fn cfa(self, sp: u8) -> Option<Vec<u8>> {
        let mut bytes = vec![0x70 + sp];
        leb128(&mut bytes, self.not.checked_neg()?);
        holds(&mut bytes, self.condition)?;
        // DW_OP_consts, DW_OP_mul, DW_OP_plus
        bytes.push(0x11);
        leb128(&mut bytes, self.not.checked_sub(self.held)?);
        bytes.extend([0x1e, 0x22]);
        Some(bytes)
    }
}

/// Push whether the condition holds: 1 or 0 (ARM ARM, A8.3).
fn holds(bytes: &mut Vec<u8>, condition: u8) -> Option<()> {
    const N: u8 = 31;
    const Z: u8 = 30;
    const C: u8 = 29;
    const V: u8 = 28;
    // DW_OP_bregx FLAGS 0, DW_OP_const1u n, DW_OP_shr, DW_OP_lit1, DW_OP_and
    let flag = |bytes: &mut Vec<u8>, n: u8| {
        bytes.extend([0x92, FLAGS, 0, 0x08, n, 0x25, 0x31, 0x1a]);
    };
    match condition >> 1 {
        0 => flag(bytes, Z),
        1 => flag(bytes, C),
        2 => flag(bytes, N),
        3 => flag(bytes, V),
        // C and not Z: DW_OP_gt
        4 => {
            flag(bytes, C);
            flag(bytes, Z);
            bytes.push(0x2b);
        }
        // N equals V: DW_OP_eq
        5 => {
            flag(bytes, N);
            flag(bytes, V);
            bytes.push(0x29);
        }
        // and not Z
        6 => {
            flag(bytes, N);
            flag(bytes, V);
            bytes.push(0x29);
            flag(bytes, Z);
            bytes.push(0x2b);
        }
        _ => return None,
    }
    if condition & 1 == 1 {
        // DW_OP_lit1, DW_OP_xor
        bytes.extend([0x31, 0x27]);
    }
    Some(())
}

/// Whether an instruction leaves the flags as they are, as far as can be told: what moves registers to and from the
/// stack does.
pub(super) fn keeps_flags(instruction: &Instruction, sp: u8) -> bool {
    let effects = instruction.effects();
    instruction.flow == Flow::Next
        && instruction.limit.is_none()
        && !effects.is_empty()
        && effects.iter().all(|effect| match *effect {
            Effect::Load { .. } | Effect::Store { .. } => true,
            Effect::Add { to, from, .. } => to == sp && from == sp,
            _ => false,
        })
}
