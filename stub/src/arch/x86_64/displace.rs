//! The copy of an x86-64 instruction that runs in a slot and then jumps back.
//!
//! ```text
//! slot:   the instruction, with its pc-relative operand adjusted
//!         jmp [rip + 0]
//!         .quad address of the next instruction
//! ```
//! The jump back needs no register. A thread is therefore in one of only two states: before the
//! instruction, or after it.

use super::super::Displaced;
use super::instruction::{Place, decode};

/// The code for `slot` with the effect that the first instruction of `code` has at `at`. `None` if
/// there is no such code.
pub(crate) fn displace(code: &[u8], at: u64, slot: u64, _kind: usize) -> Option<Displaced> {
    let instruction = decode(code)?;
    let length = instruction.length;
    let mut copy = code[..length].to_vec();
    match instruction.place {
        Place::Free => {}
        Place::Operand { displacement } => {
            let field = copy.get_mut(displacement..displacement + 4)?;
            let stated = i32::from_le_bytes(<[u8; 4]>::try_from(&*field).ok()?);
            let moved = i64::from(stated).checked_add(at.wrapping_sub(slot).cast_signed())?;
            field.copy_from_slice(&i32::try_from(moved).ok()?.to_le_bytes());
        }
        // Jumps and calls are emulated.
        _ => return None,
    }
    copy.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
    copy.extend_from_slice(&at.wrapping_add(length as u64).to_le_bytes());
    Some(Displaced { code: copy, length })
}
