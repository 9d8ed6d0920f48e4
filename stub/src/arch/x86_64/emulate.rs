//! Executes an x86-64 instruction on the kernel's register set, without the processor (Intel SDM
//! vol. 2).
//!
//! It covers the instructions with which functions usually begin. A breakpoint there then needs
//! neither removal nor a displaced copy. It also covers the instructions that depend on their
//! address, so that a copy in a slot never has to be rewritten.

use super::super::Memory;
use super::instruction::{Place, Prefixes, When, decode};
use super::user_regs::{FLAGS, FS_BASE, GS_BASE, RCX, RIP, RSP, set_word, word};

/// Index in the kernel's set of rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15, in words.
const GENERAL_ORDER: [usize; 16] = [10, 11, 12, 5, RSP, 4, 13, 14, 9, 8, 7, 6, 3, 2, 1, 0];

/// Bits of the flags register (SDM vol. 1, figure 3-8).
const CARRY: u32 = 0;
const PARITY: u32 = 2;
const ADJUST: u32 = 4;
const ZERO: u32 = 6;
const SIGN: u32 = 7;
const OVERFLOW: u32 = 11;

/// Executes the first instruction of `code`. Returns `false` and changes nothing if the instruction
/// is not one of these, or if its memory cannot be accessed.
///
/// ```text
/// f3 0f 1e fa              endbr64
/// [41] 50+r                push r64
/// [41] b8+r imm32          mov r32, imm32
/// 48|49|4c|4d 89 11sssddd  mov r64, r64
/// 48|4c 8d                 lea r64, m
/// 48 83|81 ec              sub rsp, imm8|imm32
/// e8, ff /2                call
/// e9, eb, 70-7f, 0f 80-8f, e0-e3   jmp, jcc, loop, jrcxz
/// ```
pub(crate) fn emulate(code: &[u8], general: &mut [u8], memory: &dyn Memory) -> bool {
    execute(code, general, memory).is_some()
}

fn execute(code: &[u8], general: &mut [u8], memory: &dyn Memory) -> Option<()> {
    let instruction = decode(code)?;
    let code = &code[..instruction.length];
    let next = word(general, RIP).wrapping_add(instruction.length as u64);
    let goes_to = match instruction.place {
        Place::Jump { when, offset } => {
            if taken(when, general) {
                next.wrapping_add_signed(offset.into())
            } else {
                next
            }
        }
        Place::Call { offset } => {
            let to = inside(next.wrapping_add_signed(offset.into()))?;
            push(general, memory, next)?;
            to
        }
        Place::IndirectCall { modrm, prefixes } => {
            let to = inside(target(code, modrm, prefixes, general, next, memory)?)?;
            push(general, memory, next)?;
            to
        }
        Place::Fixed => return None,
        Place::Free | Place::Operand { .. } => plain(code, general, memory, next)?,
    };
    set_word(general, RIP, inside(goes_to)?);
    Some(())
}

/// The address, if a program can have it. A jump to any other address faults at the jump.
fn inside(address: u64) -> Option<u64> {
    (address >> 47 == 0).then_some(address)
}

/// Executes an instruction that could also be copied. Returns the address of the next one.
fn plain(code: &[u8], general: &mut [u8], memory: &dyn Memory, next: u64) -> Option<u64> {
    let (rex, opcode) = match *code {
        [0xf3, 0x0f, 0x1e, 0xfa] => return Some(next),
        [prefix @ 0x40..=0x4f, ref rest @ ..] => (prefix, rest),
        ref rest => (0, rest),
    };
    let wide = rex & 8 != 0;
    match *opcode {
        [byte @ 0x50..=0x57] if !wide => {
            let value = word(general, register(byte, rex & 1));
            push(general, memory, value)?;
        }
        [byte @ 0xb8..=0xbf, a, b, c, d] if !wide => {
            let value = u32::from_le_bytes([a, b, c, d]);
            set_word(general, register(byte, rex & 1), value.into());
        }
        [0x89, modes @ 0xc0..=0xff] if wide => {
            let value = word(general, register(modes >> 3, rex >> 2));
            set_word(general, register(modes, rex), value);
        }
        [0x83, 0xec, value] if rex == 0x48 => subtract(general, RSP, i32::from(value as i8)),
        [0x81, 0xec, a, b, c, d] if rex == 0x48 => {
            subtract(general, RSP, i32::from_le_bytes([a, b, c, d]));
        }
        [0x8d, modes, ..] if wide && modes < 0xc0 => {
            let prefixes = Prefixes {
                rex,
                ..Prefixes::default()
            };
            let value = effective(code, code.len() - opcode.len() + 1, prefixes, general, next)?;
            set_word(general, register(modes >> 3, rex >> 2), value);
        }
        _ => return None,
    }
    Some(next)
}

/// `sub r64, imm`, with its flags (SDM vol. 1, 3.4.3.1).
fn subtract(general: &mut [u8], register: usize, value: i32) {
    let (from, value) = (word(general, register), i64::from(value).cast_unsigned());
    let result = from.wrapping_sub(value);
    let flags = [
        (CARRY, from < value),
        (PARITY, (result & 0xff).count_ones() % 2 == 0),
        (ADJUST, (from ^ value ^ result) >> 4 & 1 != 0),
        (ZERO, result == 0),
        (SIGN, result >> 63 != 0),
        (OVERFLOW, ((from ^ value) & (from ^ result)) >> 63 != 0),
    ];
    let mut all = word(general, FLAGS);
    for (bit, is_set) in flags {
        all = all & !(1 << bit) | u64::from(is_set) << bit;
    }
    set_word(general, FLAGS, all);
    set_word(general, register, result);
}

/// The register with these low bits of its number and the bit that a prefix adds.
fn register(low: u8, high: u8) -> usize {
    GENERAL_ORDER[usize::from(low & 7) + 8 * usize::from(high & 1)]
}

fn push(general: &mut [u8], memory: &dyn Memory, value: u64) -> Option<()> {
    let sp = word(general, RSP).wrapping_sub(8);
    memory.store(sp, &value.to_le_bytes()).then_some(())?;
    set_word(general, RSP, sp);
    Some(())
}

fn load(memory: &dyn Memory, address: u64) -> Option<u64> {
    let mut value = [0; 8];
    memory
        .load(address, &mut value)
        .then_some(u64::from_le_bytes(value))
}

/// The target of `call r/m`.
fn target(
    code: &[u8],
    modrm: usize,
    prefixes: Prefixes,
    general: &[u8],
    next: u64,
    memory: &dyn Memory,
) -> Option<u64> {
    let byte = *code.get(modrm)?;
    if byte >= 0xc0 {
        return Some(word(general, register(byte, prefixes.rex)));
    }
    load(memory, effective(code, modrm, prefixes, general, next)?)
}

/// The address of a memory operand (SDM vol. 2, 2.1.5 and 2.2.1.6).
fn effective(
    code: &[u8],
    modrm: usize,
    prefixes: Prefixes,
    general: &[u8],
    next: u64,
) -> Option<u64> {
    let byte = *code.get(modrm)?;
    let (mode, low) = (byte >> 6, byte & 7);
    let mut at = modrm + 1;
    let mut address = 0u64;
    let mut base = low;
    if low == 4 {
        let sib = *code.get(at)?;
        at += 1;
        base = sib & 7;
        let index = register(sib >> 3, prefixes.rex >> 1);
        if index != RSP {
            address = word(general, index) << (sib >> 6);
        }
    }
    let displacement: i32 = match (mode, base) {
        (1, _) => i32::from(*code.get(at)? as i8),
        (0, 5) | (2, _) => i32::from_le_bytes(*code.get(at..)?.first_chunk()?),
        _ => 0,
    };
    address = match (mode, low, base) {
        (0, 5, _) => next,
        (0, 4, 5) => address,
        _ => address.wrapping_add(word(general, register(base, prefixes.rex))),
    };
    address = address.wrapping_add_signed(displacement.into());
    if prefixes.address_32 {
        address &= 0xffff_ffff;
    }
    let segment = match prefixes.segment {
        0x64 => word(general, FS_BASE),
        0x65 => word(general, GS_BASE),
        _ => 0,
    };
    Some(address.wrapping_add(segment))
}

/// Whether a jump is taken. Decrements the counter of `loop`.
fn taken(when: When, general: &mut [u8]) -> bool {
    let flags = word(general, FLAGS);
    let counter = |wide: bool, value: u64| if wide { value } else { value & 0xffff_ffff };
    match when {
        When::Always => true,
        When::Flags(condition) => holds(condition, flags),
        When::CounterZero { wide } => counter(wide, word(general, RCX)) == 0,
        When::Loop { wide, zero_flag } => {
            let left = counter(wide, word(general, RCX).wrapping_sub(1));
            set_word(general, RCX, left);
            let zero = flags >> ZERO & 1 != 0;
            left != 0 && zero_flag.is_none_or(|wanted| wanted == zero)
        }
    }
}

/// Whether a condition of `jcc` holds, by its number (SDM vol. 2, B.1.4.7).
fn holds(condition: u8, flags: u64) -> bool {
    let flag = |bit: u32| flags >> bit & 1 != 0;
    let [carry, parity, zero, sign, overflow] = [CARRY, PARITY, ZERO, SIGN, OVERFLOW].map(flag);
    let holds = match condition >> 1 & 7 {
        0 => overflow,
        1 => carry,
        2 => zero,
        3 => carry || zero,
        4 => sign,
        5 => parity,
        6 => sign != overflow,
        _ => zero || sign != overflow,
    };
    holds == (condition & 1 == 0)
}
