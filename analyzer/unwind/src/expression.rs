//! Evaluates DWARF expressions of call frame information (DWARF 5, 2.5 and 6.4.2).
//!
//! Evaluation does not allocate, and knows only the operations that CFI allows.

pub(crate) mod text;

use crate::cursor::Cursor;
use crate::memory::{StackMemory, read_pointer};
use crate::registers::{RegisterFile, roles};

const DEPTH: usize = 32;
/// Limit of operations, because branches can go backwards. Real expressions need far fewer.
const MAX_STEPS: usize = 512;

/// Evaluates `bytes` with `initial` on the stack (for register rules, the CFA). `None` if the
/// expression is malformed, or if a register or memory it needs is missing.
pub(crate) fn evaluate(
    bytes: &[u8],
    initial: Option<u64>,
    registers: &RegisterFile,
    memory: &mut dyn StackMemory,
) -> Option<u64> {
    let pointer = roles(registers.arch()).pointer;
    let mask = if pointer == 4 { 0xffff_ffff } else { u64::MAX };
    let mut stack = Operands::default();
    if let Some(initial) = initial {
        stack.push(initial)?;
    }
    let mut at = Cursor::new(bytes);
    for _ in 0..MAX_STEPS {
        let Some(opcode) = at.u8() else {
            return stack.pop().map(|value| value & mask);
        };
        match opcode {
            0x03 => stack.push(at.unsigned(pointer)?)?, // addr
            0x06 => {
                // deref
                let address = stack.pop()? & mask;
                stack.push(read_pointer(memory, address, pointer).ok()?)?;
            }
            0x08 => stack.push(at.unsigned(1)?)?, // const1u
            0x09 => stack.push(at.signed(1)?)?,   // const1s
            0x0a => stack.push(at.unsigned(2)?)?,
            0x0b => stack.push(at.signed(2)?)?,
            0x0c => stack.push(at.unsigned(4)?)?,
            0x0d => stack.push(at.signed(4)?)?,
            0x0e | 0x0f => stack.push(at.unsigned(8)?)?,
            0x10 => stack.push(at.uleb()?)?,        // constu
            0x11 => stack.push(at.sleb()? as u64)?, // consts
            0x12 => stack.pick(0)?,                 // dup
            0x13 => {
                stack.pop()?; // drop
            }
            0x14 => stack.pick(1)?, // over
            0x15 => {
                let index = at.u8()?;
                stack.pick(usize::from(index))?; // pick
            }
            0x16 => {
                let (b, a) = (stack.pop()?, stack.pop()?); // swap
                stack.push(b)?;
                stack.push(a)?;
            }
            0x17 => {
                let (c, b, a) = (stack.pop()?, stack.pop()?, stack.pop()?); // rot
                stack.push(c)?;
                stack.push(a)?;
                stack.push(b)?;
            }
            0x19 => {
                let value = stack.pop()? as i64; // abs
                stack.push(value.unsigned_abs())?;
            }
            0x1f => {
                let value = stack.pop()?; // neg
                stack.push(value.wrapping_neg())?;
            }
            0x20 => {
                let value = stack.pop()?; // not
                stack.push(!value)?;
            }
            0x23 => {
                let (addend, value) = (at.uleb()?, stack.pop()?); // plus_uconst
                stack.push(value.wrapping_add(addend))?;
            }
            0x1a..=0x1e | 0x21 | 0x22 | 0x24..=0x27 | 0x29..=0x2e => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                stack.push(binary(opcode, a, b)?)?;
            }
            0x28 => {
                let target = at.signed(2)?; // bra
                if stack.pop()? != 0 {
                    at.jump(target)?;
                }
            }
            0x2f => {
                let target = at.signed(2)?; // skip
                at.jump(target)?;
            }
            0x30..=0x4f => stack.push(u64::from(opcode - 0x30))?, // lit
            0x70..=0x8f => {
                let offset = at.sleb()?; // breg
                let value = registers.get(opcode - 0x70)?;
                stack.push(value.wrapping_add_signed(offset))?;
            }
            0x92 => {
                let register = u8::try_from(at.uleb()?).ok()?; // bregx
                let offset = at.sleb()?;
                stack.push(registers.get(register)?.wrapping_add_signed(offset))?;
            }
            0x94 => {
                let size = usize::from(at.u8()?); // deref_size
                if size == 0 || size > 8 {
                    return None;
                }
                let address = stack.pop()? & mask;
                stack.push(read_pointer(memory, address, size).ok()?)?;
            }
            0x96 => {} // nop
            _ => return None,
        }
    }
    None
}

fn binary(opcode: u8, a: u64, b: u64) -> Option<u64> {
    let truth = |value: bool| Some(u64::from(value));
    let (sa, sb) = (a as i64, b as i64);
    let shift = u32::try_from(b).ok();
    match opcode {
        0x1a => Some(a & b),
        0x1b => sa.checked_div(sb).map(|value| value as u64),
        0x1c => Some(a.wrapping_sub(b)),
        0x1d => a.checked_rem(b),
        0x1e => Some(a.wrapping_mul(b)),
        0x21 => Some(a | b),
        0x22 => Some(a.wrapping_add(b)),
        0x24 => Some(shift.and_then(|by| a.checked_shl(by)).unwrap_or(0)),
        0x25 => Some(shift.and_then(|by| a.checked_shr(by)).unwrap_or(0)),
        0x26 => Some(shift.and_then(|by| sa.checked_shr(by)).unwrap_or(sa >> 63) as u64),
        0x27 => Some(a ^ b),
        0x29 => truth(a == b),
        0x2a => truth(sa >= sb),
        0x2b => truth(sa > sb),
        0x2c => truth(sa <= sb),
        0x2d => truth(sa < sb),
        0x2e => truth(a != b),
        _ => None,
    }
}

#[derive(Default)]
struct Operands {
    values: [u64; DEPTH],
    len: usize,
}

impl Operands {
    fn push(&mut self, value: u64) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        Some(self.values[self.len])
    }

    fn pick(&mut self, from_top: usize) -> Option<()> {
        let index = self.len.checked_sub(from_top + 1)?;
        self.push(self.values[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::SnapshotMemory;
    use unspool_image::Arch;

    fn registers() -> RegisterFile {
        RegisterFile::new(Arch::X86_64, |name| match name {
            "rsp" => Some(0x1000),
            "rip" => Some(0x40_100b),
            _ => None,
        })
    }

    /// The expression of every x86-64 PLT: `rsp+8+((((rip+0) & 15) >= 11) << 3)`.
    #[test]
    fn plt() {
        let plt = [
            0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
        ];
        let mut memory = SnapshotMemory::new();
        let value = evaluate(&plt, None, &registers(), &mut memory);
        assert_eq!(value, Some(0x1010));
    }

    #[test]
    fn a_loop_ends() {
        // skip -3
        let mut memory = SnapshotMemory::new();
        let value = evaluate(&[0x2f, 0xfd, 0xff], None, &registers(), &mut memory);
        assert_eq!(value, None);
    }

    #[test]
    fn every_two_byte_expression_ends() {
        let mut memory = SnapshotMemory::new();
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                evaluate(&[first, second], Some(1), &registers(), &mut memory);
            }
        }
    }
}
