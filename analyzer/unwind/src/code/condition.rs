//! Stack pointers that depend on the flags.
//!
//! After a conditional instruction such as `popcc {r8}`, the stack pointer has one of two values
//! until the paths separate (`bcc`). The flags, which a snapshot contains, tell which. Separate
//! from the state, which does not track flags, because only ARM has such code.

use super::effect::{Flow, Instruction};
use super::state::leb128;
use super::text::Text;
use crate::registers::FLAGS;

/// The stack pointer relative to the CFA, on both paths of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Either {
    /// The ARM condition code.
    pub(super) condition: u8,
    /// The offset if the condition holds.
    pub(super) held: i32,
    /// The offset if it does not hold.
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

/// Pushes whether the condition holds: 1 or 0 (ARM ARM, A8.3).
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

/// Whether a conditional instruction sets the flags. (In an IT block, 16-bit instructions other
/// than comparisons do not: ARM ARM, A8.3.1.)
pub(super) fn sets_flags(
    text: &Text<'_>,
    svma: u64,
    thumb: bool,
    instruction: &Instruction,
) -> bool {
    // mrc to r15 writes the flags; vmrs is one
    let transfer = |w: u32| w >> 24 & 0xf == 0b1110 && w & 0x0010_f010 == 0x0010_f010;
    if matches!(instruction.flow, Flow::Call(_)) {
        return true;
    }
    if !thumb {
        let w = text.word(svma).unwrap_or(0);
        let (group, status) = (w >> 26 & 3, w >> 20 & 1 == 1);
        // A5.2: bits 7 and 4 of register instructions mark multiplications, loads and stores.
        let other = w >> 25 & 1 == 0 && w >> 7 & 1 == 1 && w >> 4 & 1 == 1;
        let multiplies = w >> 24 & 0xf == 0 && w >> 4 & 0xf == 0b1001;
        // msr
        let moves =
            w & 0x0fb0_fff0 == 0x0120_f000 || w & 0x0fb0_f000 == 0x0320_f000 && w & 0xf_0000 != 0;
        return group == 0 && (status && (!other || multiplies) || moves) || transfer(w);
    }
    let a = u32::from(text.half(svma).unwrap_or(0));
    if instruction.len == 2 {
        // cmp; tst, cmp, cmn; cmp of high registers
        return a >> 11 == 0b00101
            || matches!(a >> 6, 0b01_0000_1000 | 0b01_0000_1010 | 0b01_0000_1011)
            || a >> 8 == 0b0100_0101;
    }
    let b = u32::from(text.half(svma + 2).unwrap_or(0));
    let status = a >> 4 & 1 == 1;
    // A6.3.1, A6.3.11, A6.3.12: the bit S
    let computes = a >> 11 == 0b11110 && a >> 9 & 1 == 0 && b >> 15 == 0
        || a >> 9 == 0b111_0101
        || a >> 7 == 0b1_1111_0100 && b >> 12 == 0xf && b >> 4 & 0xf == 0;
    // msr
    let moves = a & 0xffe0 == 0xf380 && b & 0xd000 == 0x8000;
    computes && status || moves || transfer(a << 16 | b)
}
