//! Executing an A32 or T32 instruction without the processor where its place matters, and a copy of it where not
//! (DDI 0406C).
//!
//! ```text
//! A32 slot:   the instruction              T32 slot:   the instruction, and a nop behind a narrow one
//!             ldr pc, [pc, #-4]                        ldr.w pc, [pc, #0]
//!             .word its successor                      .word its successor + 1
//! ```
//! The kernel has the flags, the IT state and the instruction set in one register with the general ones.

use super::super::{Displaced, Memory};
use super::flow::{Flow, Registers, target};
use super::next_pcs::{advance, in_it_block};
use super::{a32, registers, t32};

/// Executes an instruction that goes somewhere or reads the program counter, or one whose condition fails. `false`: it
/// is none, or its memory is not there, and nothing has changed.
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

/// Whether an instruction can be displaced in this state: in an IT block the way back would be conditional, too.
pub(crate) fn may_displace(general: &[u8]) -> bool {
    registers(general).is_some_and(|registers| registers.it_state() & 15 == 0)
}

fn execute(code: &[u8], state: &mut Registers, memory: &dyn Memory) -> Option<()> {
    let thumb = state.thumb();
    let instruction = if thumb {
        let first = u16::from_le_bytes(*code.first_chunk()?);
        let second = code
            .get(2..4)
            .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
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
    // 1111 is no condition but A32's space of instructions that have none.
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
            let (register, value) = if thumb {
                t32_reads_pc(code, state, memory)?
            } else {
                a32_reads_pc(code, state, memory)?
            };
            state.r[usize::from(register)] = value;
            state.set_it_state(after_it);
            state.r[15] = next;
            return Some(());
        }
        // These change more than the program counter, and can be copied.
        Flow::Load { .. } | Flow::Kernel(_) | Flow::LoadExclusive | Flow::StoreExclusive => {
            return None;
        }
        // With S: a return from an exception, which no program can make.
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

/// The literal loads and additions of A32 that read the program counter: the register, and what it is set to.
fn a32_reads_pc(code: &[u8], state: &Registers, memory: &dyn Memory) -> Option<(u8, u32)> {
    let code = u32::from_le_bytes(*code.first_chunk()?);
    let destination = (code >> 12 & 15) as u8;
    let pc = state.r[15].wrapping_add(8);
    if destination == 15 || code >> 28 == 15 {
        return None;
    }
    let number = (code & 0xff).rotate_right(2 * (code >> 8 & 15));
    let value = match code >> 16 & 0xfff {
        // LDR (literal): cccc 0101 u001 1111 tttt iiii iiii iiii
        0x51f => load(memory, pc.wrapping_sub(code & 0xfff))?,
        0x59f => load(memory, pc.wrapping_add(code & 0xfff))?,
        // ADR, or ADD and SUB: cccc 0010 1000 1111, cccc 0010 0100 1111
        0x28f => pc.wrapping_add(number),
        0x24f => pc.wrapping_sub(number),
        // ADD, unshifted: cccc 0000 1000 1111 dddd 0000 0000 mmmm, or with the program counter as the second operand
        0x08f if code & 0xff0 == 0 && code & 15 != 15 => {
            pc.wrapping_add(state.r[(code & 15) as usize])
        }
        first if first & 0xff0 == 0x080 && code & 0xfff == 15 && first & 15 != 15 => {
            pc.wrapping_add(state.r[(first & 15) as usize])
        }
        // MOV: cccc 0001 1010 0000 dddd 0000 0000 1111
        0x1a0 if code & 0xfff == 15 => pc,
        // LDR (register), from a table behind the code: cccc 0111 1001 1111 tttt iiii i000 mmmm
        0x79f if code & 0x70 == 0 && code & 15 != 15 => {
            let index = state.r[(code & 15) as usize] << (code >> 7 & 31);
            load(memory, pc.wrapping_add(index))?
        }
        _ => return None,
    };
    Some((destination, value))
}

/// The same of T32.
fn t32_reads_pc(code: &[u8], state: &Registers, memory: &dyn Memory) -> Option<(u8, u32)> {
    let first = u32::from(u16::from_le_bytes(*code.first_chunk()?));
    let pc = state.r[15].wrapping_add(4);
    let aligned = pc & !3;
    match first >> 8 {
        // LDR T1: 0100 1ttt iiii iiii
        0x48..=0x4f => {
            let value = load(memory, aligned.wrapping_add(4 * (first & 0xff)))?;
            return Some(((first >> 8 & 7) as u8, value));
        }
        // ADR T1: 1010 0ddd iiii iiii
        0xa0..=0xa7 => {
            return Some((
                (first >> 8 & 7) as u8,
                aligned.wrapping_add(4 * (first & 0xff)),
            ));
        }
        // ADD, MOV: 0100 0100 d111 1ddd, 0100 0110 d111 1ddd
        0x44 | 0x46 if first >> 3 & 15 == 15 => {
            let register = (first & 7 | first >> 4 & 8) as u8;
            if register == 15 {
                return None;
            }
            let old = if first >> 8 == 0x44 {
                state.r[usize::from(register)]
            } else {
                0
            };
            return Some((register, pc.wrapping_add(old)));
        }
        _ => {}
    }
    let second = u32::from(u16::from_le_bytes([*code.get(2)?, *code.get(3)?]));
    let register = (second >> 8 & 15) as u8;
    let number = (first >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xff;
    match first {
        // LDR T2: 1111 1000 u101 1111 tttt iiii iiii iiii
        0xf85f | 0xf8df => {
            let register = (second >> 12) as u8;
            let offset = second & 0xfff;
            let at = if first == 0xf8df {
                aligned.wrapping_add(offset)
            } else {
                aligned.wrapping_sub(offset)
            };
            (register != 15).then_some((register, load(memory, at)?))
        }
        // ADR T3, T2: 1111 0i10 0000 1111 0iii dddd iiii iiii, 1111 0i10 1010 1111
        0xf20f | 0xf60f if second & 0x8000 == 0 => Some((register, aligned.wrapping_add(number))),
        0xf2af | 0xf6af if second & 0x8000 == 0 => Some((register, aligned.wrapping_sub(number))),
        _ => None,
    }
}

fn load(memory: &dyn Memory, address: u32) -> Option<u32> {
    let mut word = [0; 4];
    memory
        .load(address.into(), &mut word)
        .then_some(u32::from_le_bytes(word))
}

/// The code for `slot` that does what the instruction at `at` does there; the breakpoint kind tells the
/// instruction set. `None`: nothing does.
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
    let first = u16::from_le_bytes(*code.first_chunk()?);
    let length = if t32::is_wide(first) { 4 } else { 2 };
    let original = code.get(..length)?;
    let second = original.get(2..).filter(|rest| !rest.is_empty());
    let second = second.map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
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

/// Whether a copy of an A32 instruction does the same elsewhere: it does not read the program counter, and what it
/// writes to it, if anything, is a whole address.
fn a32_is_free(code: u32) -> bool {
    let is_pc = |low: u32| code >> low & 15 == 15;
    match a32::decode(code).flow {
        Flow::Next | Flow::Load { .. } | Flow::LoadExclusive | Flow::StoreExclusive => {}
        _ => return false,
    }
    if code >> 28 == 15 {
        // Advanced SIMD, hints, barriers; loads and stores of it need a register that is no pc.
        return true;
    }
    match code >> 25 & 7 {
        0b000 => {
            let by_register = code >> 4 & 1 != 0;
            let extra = by_register && code >> 7 & 1 != 0;
            let miscellaneous = code >> 23 & 3 == 0b10 && code >> 20 & 1 == 0;
            match (extra, miscellaneous) {
                // Multiplications and exclusives have no pc; halfwords and doublewords may be literals.
                (true, _) => code >> 5 & 3 == 0 || !(is_pc(16) || is_pc(0) && code >> 22 & 1 == 0),
                // BKPT, HVC, SMC and what is undefined; MRS, MSR, CLZ, saturating additions, signed multiplications.
                (_, true) => code >> 4 & 7 != 7,
                _ => !(is_pc(0) || is_pc(16) || by_register && is_pc(8)),
            }
        }
        // MOVW, MOVT, MSR and hints have other things where the first operand is.
        0b001 => code >> 23 & 3 == 0b10 && code >> 20 & 1 == 0 || !is_pc(16),
        0b010 => !(is_pc(16) || is_store(code) && is_pc(12)),
        // Media: no pc, but UDF is among them.
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

/// The same for T32, outside IT blocks.
fn t32_is_free(first: u16, second: u16) -> bool {
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
    match first >> 9 & 0xf {
        // Multiple; dual, exclusive.
        0b0100 => !base_is_pc,
        // Data processing with a plain number: ADR is among them.
        0b1001 | 0b1011 if second & 0x8000 == 0 => !base_is_pc || first & 0x40 != 0,
        // UDF: 1111 0111 1111 .... 1010
        0b1011 => !(first & 0x1f0 == 0x1f0 && second >> 12 == 0b1010),
        // Single loads and stores; SIMD element loads.
        0b1100 => !base_is_pc,
        // Coprocessors and floating point: 111x 110.
        0b0110 | 0b1110 => !base_is_pc,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
