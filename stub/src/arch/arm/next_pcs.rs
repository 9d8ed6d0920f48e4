//! The places that a thread can reach next: the basis of single-stepping on a processor without
//! hardware support.
//!
//! To execute one instruction, the stub lets the thread run into traps at all of these places. A
//! sequence from a load-exclusive to its store counts as one instruction. A trap inside would clear
//! the monitor, the store would fail, and the sequence would repeat forever. In an IT block, no
//! trap goes to an instruction whose condition fails: the processor might skip the trap, too.

use super::flow::{ALWAYS, Flow, Instruction, KERNEL_HELPERS, Read, Registers, next_place};
use super::{a32, t32};

/// A place to trap at: address and breakpoint kind.
pub(super) type Place = (u64, usize);

/// Maximum number of instructions from an exclusive load to its store.
const LONGEST_SEQUENCE: usize = 16;

/// All places where the thread may be after its next instruction. Empty if that instruction cannot
/// be read: it will fault.
pub(super) fn next_pcs(registers: &Registers, read: Read<'_>) -> Vec<Place> {
    let thumb = registers.thumb();
    // At the start of a signal handler, the register may still contain the instruction set bit.
    let pc = registers.r[15] & if thumb { !1 } else { !3 };
    if pc >= KERNEL_HELPERS {
        return vec![place(registers.r[14])];
    }
    let Some(instruction) = fetch(pc, thumb, read) else {
        return Vec::new();
    };
    let it = registers.it_state();
    let condition = if in_it_block(it) {
        it >> 4
    } else {
        instruction.condition
    };
    let after = pc.wrapping_add(instruction.size);
    if registers.passes(condition) {
        if instruction.flow == Flow::LoadExclusive
            && let Some(ends) = sequence(after, thumb, advance(it), read)
        {
            return ends;
        }
        if let Some(to) = returns(&instruction, registers, read)
            .or_else(|| next_place(&instruction, registers, read))
        {
            return vec![place(to)];
        }
    }
    let it = match instruction.flow {
        Flow::IfThen(state) => state,
        _ => advance(it),
    };
    let flags_known = matches!(instruction.flow, Flow::IfThen(_)) || !registers.passes(condition);
    let flags = flags_known.then_some(registers);
    linear_successors(after, thumb, it, flags, read)
}

/// Reads and decodes the instruction at an address.
fn fetch(at: u32, thumb: bool, read: Read<'_>) -> Option<Instruction> {
    let mut word = [0; 4];
    if !thumb {
        return read(at.into(), &mut word).then(|| a32::decode(u32::from_le_bytes(word)));
    }
    if !read(at.into(), &mut word[..2]) {
        return None;
    }
    let first = u16::from_le_bytes([word[0], word[1]]);
    if t32::is_wide(first) && !read(u64::from(at) + 2, &mut word[2..]) {
        return None;
    }
    Some(t32::decode(first, u16::from_le_bytes([word[2], word[3]])))
}

/// Whether `IT[7:0]` means that the instruction is in a block (A2.5.2).
pub(super) fn in_it_block(it: u8) -> bool {
    it & 15 != 0
}

/// `ITAdvance()` (A2.5.2).
pub(super) fn advance(it: u8) -> u8 {
    if it & 7 == 0 {
        0
    } else {
        it & 0xe0 | it << 1 & 0x1f
    }
}

/// The trap at an address whose lowest bit is the instruction set. In T32 it is a halfword, which
/// other threads cannot see half written.
fn place(to: u32) -> Place {
    if to & 1 == 0 {
        (u64::from(to & !3), 4)
    } else {
        (u64::from(to & !1), 2)
    }
}

/// A trap as long as the instruction at the address. The processor may skip a trap in an IT block;
/// after one that is too short, it would execute the rest of the instruction.
pub(super) fn whole(to: u32, read: Read<'_>) -> Place {
    if to & 1 == 0 {
        return place(to);
    }
    let at = u64::from(to & !1);
    let mut first = [0; 2];
    let wide = read(at, &mut first) && t32::is_wide(u16::from_le_bytes(first));
    (at, if wide { 3 } else { 2 })
}

/// The places that a thread can reach next if it continues at `at` without a jump. In an IT block:
/// the next instruction for each outcome of the condition, or only for the outcome by `flags`.
fn linear_successors(
    at: u32,
    thumb: bool,
    mut it: u8,
    flags: Option<&Registers>,
    read: Read<'_>,
) -> Vec<Place> {
    let mut at = at;
    let mut places = Vec::new();
    let mut outcomes = [false; 2];
    while in_it_block(it) {
        let outcome = usize::from(it >> 4 & 1);
        let always = it >> 5 == 7;
        let wanted = always || flags.is_none_or(|flags| flags.passes(it >> 4));
        if wanted && !outcomes[outcome] {
            places.push(whole(at | u32::from(thumb), read));
            outcomes[outcome] = true;
        }
        if always || places.len() == 2 || (wanted && flags.is_some()) {
            return places;
        }
        let Some(instruction) = fetch(at, thumb, read) else {
            return places;
        };
        at = at.wrapping_add(instruction.size);
        it = advance(it);
    }
    places.push(place(at | u32::from(thumb)));
    places
}

/// The places after the exclusive store that belongs to a load, and the exits from the sequence
/// before it. The load's successor is at `at`. `None` if there is no such store.
fn sequence(at: u32, thumb: bool, mut it: u8, read: Read<'_>) -> Option<Vec<Place>> {
    let start = at;
    let mut at = at;
    let mut exits = Vec::new();
    for _ in 0..LONGEST_SEQUENCE {
        let instruction = fetch(at, thumb, read)?;
        let pc = at.wrapping_add(if thumb { 4 } else { 8 });
        let after = at.wrapping_add(instruction.size);
        let conditional = instruction.condition < ALWAYS && !in_it_block(it);
        match instruction.flow {
            Flow::Next | Flow::IfThen(_) => {}
            Flow::StoreExclusive => {
                exits.retain(|exit| !(start..after).contains(exit));
                let mut places = linear_successors(after, thumb, advance(it), None, read);
                for exit in exits {
                    places.push(place(exit | u32::from(thumb)));
                }
                places.sort_unstable();
                places.dedup();
                return Some(places);
            }
            Flow::Jump {
                offset,
                exchange: false,
                link: false,
            } if conditional || in_it_block(it) => exits.push(pc.wrapping_add_signed(offset)),
            Flow::JumpIfZero { offset, .. } => exits.push(pc.wrapping_add(offset)),
            _ => return None,
        }
        it = match instruction.flow {
            Flow::IfThen(state) => state,
            _ => advance(it),
        };
        at = after;
    }
    None
}

/// The address to which sigreturn(2) and rt_sigreturn(2) return, from the frame on the stack.
/// Offsets are those of `struct sigframe` and `rt_sigframe` (Linux, `arch/arm/kernel/signal.h`).
fn returns(instruction: &Instruction, registers: &Registers, read: Read<'_>) -> Option<u32> {
    const SIGRETURN: u32 = 119;
    const RT_SIGRETURN: u32 = 173;
    const SIGINFO: u32 = 128;
    /// `uc_flags`, `uc_link`, `uc_stack`, then three words before r0.
    const R0: u32 = 20 + 12;
    let Flow::Kernel(number) = instruction.flow else {
        return None;
    };
    // The number is in the instruction in the old calling convention.
    let call = match number {
        0 => registers.r[7],
        number => number & 0xf_ffff,
    };
    let context = match call {
        SIGRETURN => R0,
        RT_SIGRETURN => SIGINFO + R0,
        _ => return None,
    };
    let word = |index: u32| {
        let mut word = [0; 4];
        let at = registers.r[13].wrapping_add(context + 4 * index);
        read(at.into(), &mut word).then_some(u32::from_le_bytes(word))
    };
    let (pc, cpsr) = (word(15)?, word(16)?);
    Some(pc & !1 | cpsr >> 5 & 1)
}

#[cfg(test)]
mod tests;
