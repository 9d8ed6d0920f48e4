//! Executes an A32 or T32 instruction without the processor if it depends on its address, and
//! otherwise makes a copy of it (DDI 0406C).
//!
//! ```text
//! A32 slot:   the instruction              T32 slot:   the instruction; a nop if it is narrow
//!             ldr pc, [pc, #-4]                        ldr.w pc, [pc, #0]
//!             .word its successor                      .word its successor + 1
//! ```
//! The kernel stores the flags, the IT state and the instruction set in one register, which is in
//! the set of the general registers.

use super::super::{Displaced, Memory};
use super::flow::{Flow, Registers, target};
use super::next_pcs::{advance, in_it_block};
use super::relative::{self, Value};
use super::{a32, registers, t32};

/// Executes an instruction that jumps, that reads the program counter, or whose condition fails.
/// Returns `false` and changes nothing if it is another instruction, or if its memory cannot be
/// read.
pub(crate) fn emulate(code: &[u8], general: &mut [u8], memory: &dyn Memory) -> bool {
    let Some(mut state) = registers(general) else {
        return false;
    };
    if execute(code, &mut state, memory).is_none() {
        return false;
    }
    for (index, value) in state.r.iter().chain([&state.cpsr]).enumerate() {
        if let Some(word) = general.get_mut(4 * index..4 * index + 4) {
            word.copy_from_slice(&value.to_le_bytes());
        }
    }
    true
}

/// Whether an instruction can be displaced in this state. In an IT block it cannot: the jump back
/// would be conditional, too.
pub(crate) fn may_displace(general: &[u8]) -> bool {
    registers(general).is_some_and(|registers| registers.it_state() & 15 == 0)
}

fn execute(code: &[u8], state: &mut Registers, memory: &dyn Memory) -> Option<()> {
    let thumb = state.thumb();
    let instruction = if thumb {
        let (first, second) = halves(code)?;
        t32::decode(first, second)
    } else {
        a32::decode(u32::from_le_bytes(*code.first_chunk()?))
    };
    let it = state.it_state();
    let condition = if in_it_block(it) {
        it >> 4
    } else {
        instruction.condition
    };
    let next = state.r[15].wrapping_add(instruction.size);
    // 1111 is not a condition, but the A32 space of unconditional instructions.
    if condition < 14 && !state.passes(condition) {
        state.set_it_state(advance(it));
        state.r[15] = next;
        return Some(());
    }
    let after_it = advance(it);
    match instruction.flow {
        Flow::IfThen(begun) => {
            state.set_it_state(begun);
            state.r[15] = next;
            return Some(());
        }
        Flow::Next => {
            let at = state.r[15];
            let (register, found) = if thumb {
                let (first, second) = halves(code)?;
                relative::t32(first, second, at)?
            } else {
                relative::a32(u32::from_le_bytes(*code.first_chunk()?), at)?
            };
            state.r[usize::from(register)] = value(found, state, memory)?;
            state.set_it_state(after_it);
            state.r[15] = next;
            return Some(());
        }
        // These change more than the program counter. They can be copied.
        Flow::Load { .. } | Flow::Kernel(_) | Flow::LoadExclusive | Flow::StoreExclusive => {
            return None;
        }
        // With S it is a return from an exception, which a program cannot execute.
        Flow::Compute { .. } if code.get(2)? & 0x10 != 0 => return None,
        _ => {}
    }
    let read = |address: u64, into: &mut [u8]| memory.load(address, into);
    let to = match (target(&instruction, state, &read), instruction.flow) {
        (Some(to), _) => to,
        (None, Flow::JumpIfZero { .. }) => next | u32::from(thumb),
        (None, _) => return None,
    };
    let link = matches!(
        instruction.flow,
        Flow::Jump { link: true, .. } | Flow::Register { link: true, .. }
    );
    if link {
        state.r[14] = next | u32::from(thumb);
    }
    state.set_it_state(after_it);
    state.branch(to);
    Some(())
}

/// The first halfword of a T32 instruction, and the second one, or zero if there is none.
pub(super) fn halves(code: &[u8]) -> Option<(u16, u16)> {
    let first = u16::from_le_bytes(*code.first_chunk()?);
    let second = code
        .get(2..4)
        .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
    Some((first, second))
}

/// The value that an instruction computes from the program counter.
fn value(value: Value, state: &Registers, memory: &dyn Memory) -> Option<u32> {
    let of = |register: u8| state.r[usize::from(register)];
    Some(match value {
        Value::Number(number) => number,
        Value::Sum(register, number) => number.wrapping_add(of(register)),
        Value::Word(address) => load(memory, address)?,
        Value::Entry(address, register, shift) => {
            load(memory, address.wrapping_add(of(register) << shift))?
        }
    })
}

fn load(memory: &dyn Memory, address: u32) -> Option<u32> {
    let mut word = [0; 4];
    memory
        .load(address.into(), &mut word)
        .then_some(u32::from_le_bytes(word))
}

/// The code for `slot` with the effect that the instruction at `at` has there. The breakpoint kind
/// implies the instruction set. `None` if there is no such code.
pub(crate) fn displace(code: &[u8], at: u64, slot: u64, kind: usize) -> Option<Displaced> {
    let at = u32::try_from(at).ok()?;
    if !slot.is_multiple_of(4) {
        return None;
    }
    if kind == 4 {
        let original = *code.first_chunk::<4>()?;
        if !a32_is_free(u32::from_le_bytes(original)) {
            return None;
        }
        let back = [0xe51f_f004_u32, at.wrapping_add(4)];
        return Some(Displaced {
            code: [original, back[0].to_le_bytes(), back[1].to_le_bytes()].concat(),
            length: 4,
        });
    }
    let (first, second) = halves(code)?;
    let length = if t32::is_wide(first) { 4 } else { 2 };
    let original = code.get(..length)?;
    if !t32_is_free(first, second) {
        return None;
    }
    let mut copy = original.to_vec();
    if length == 2 {
        // NOP T1
        copy.extend_from_slice(&0xbf00_u16.to_le_bytes());
    }
    copy.extend_from_slice(&0xf8df_u16.to_le_bytes());
    copy.extend_from_slice(&0xf000_u16.to_le_bytes());
    let next = at.wrapping_add(length as u32) | 1;
    copy.extend_from_slice(&next.to_le_bytes());
    Some(Displaced { code: copy, length })
}

/// Whether a copy of an A32 instruction has the same effect elsewhere: it does not read the program
/// counter, and if it writes the program counter, the value is a complete address.
pub(super) fn a32_is_free(code: u32) -> bool {
    let is_pc = |low: u32| code >> low & 15 == 15;
    match a32::decode(code).flow {
        Flow::Next | Flow::Load { .. } | Flow::LoadExclusive | Flow::StoreExclusive => {}
        _ => return false,
    }
    if code >> 28 == 15 {
        // Advanced SIMD, hints, barriers. SIMD loads and stores may not have the pc as their base.
        return true;
    }
    match code >> 25 & 7 {
        0b000 => {
            let by_register = code >> 4 & 1 != 0;
            let extra = by_register && code >> 7 & 1 != 0;
            let miscellaneous = code >> 23 & 3 == 0b10 && code >> 20 & 1 == 0;
            match (extra, miscellaneous) {
                // Multiplications and exclusives do not use the pc. Loads of halfwords and
                // doublewords may be literals.
                (true, _) => code >> 5 & 3 == 0 || !(is_pc(16) || is_pc(0) && code >> 22 & 1 == 0),
                // BKPT, HVC, SMC and undefined instructions; MRS, MSR, CLZ, saturating additions,
                // signed multiplications.
                (_, true) => code >> 4 & 7 != 7,
                _ => !(is_pc(0) || is_pc(16) || by_register && is_pc(8)),
            }
        }
        // MOVW, MOVT, MSR and hints have no first operand in that field.
        0b001 => code >> 23 & 3 == 0b10 && code >> 20 & 1 == 0 || !is_pc(16),
        0b010 => !(is_pc(16) || is_store(code) && is_pc(12)),
        // Media instructions do not use the pc, but UDF is among them.
        0b011 if code >> 4 & 1 != 0 => code >> 20 & 0xff != 0x7f,
        0b011 => !(is_pc(16) || is_pc(0) || is_store(code) && is_pc(12)),
        // STM with the program counter.
        0b100 => !(is_store(code) && code >> 15 & 1 != 0) && code >> 22 & 1 == 0,
        0b110 => !is_pc(16),
        // Coprocessor registers.
        _ => true,
    }
}

fn is_store(code: u32) -> bool {
    code >> 20 & 1 == 0
}

/// Like [`a32_is_free`], for a T32 instruction outside IT blocks.
pub(super) fn t32_is_free(first: u16, second: u16) -> bool {
    match t32::decode(first, second).flow {
        Flow::Next | Flow::Load { .. } | Flow::LoadExclusive | Flow::StoreExclusive => {}
        _ => return false,
    }
    if !t32::is_wide(first) {
        return match first >> 8 {
            // Literals and addresses.
            0x48..=0x4f | 0xa0..=0xa7 => false,
            // High registers: 0100 01oo dmmm mddd
            0x44..=0x46 => first >> 3 & 15 != 15 && (first & 7 | first >> 4 & 8) != 15,
            // BKPT, UDF
            0xbe | 0xde => false,
            _ => true,
        };
    }
    let base_is_pc = first & 15 == 15;
    // UNPREDICTABLE if the program counter is stored.
    let stores = first & 0x10 == 0;
    let pc_is_stored =
        stores && (second >> 12 == 15 || first & 0x40 != 0 && second >> 8 & 15 == 15);
    match first >> 9 & 0xf {
        // Multiple; dual, exclusive.
        0b0100 if first & 0x40 == 0 => !(base_is_pc || stores && second >> 15 != 0),
        0b0100 => !base_is_pc && !pc_is_stored,
        // Data processing with a modified number. MOV and MVN have no first operand; for the others
        // the pc is UNPREDICTABLE.
        0b1000 | 0b1010 if second & 0x8000 == 0 => !base_is_pc || matches!(first >> 5 & 15, 2 | 3),
        // Data processing with a plain number; ADR is among them.
        0b1001 | 0b1011 if second & 0x8000 == 0 => !base_is_pc || first & 0x40 != 0,
        // UDF: 1111 0111 1111 .... 1010
        0b1011 => !(first & 0x1f0 == 0x1f0 && second >> 12 == 0b1010),
        // Single loads and stores; SIMD element loads.
        0b1100 => !(base_is_pc || stores && second >> 12 == 15),
        // Coprocessors and floating point: 111x 110.
        0b0110 | 0b1110 => !base_is_pc,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
