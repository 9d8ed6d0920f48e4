//! Instructions that set a register to a value that depends on the program counter, and change
//! nothing else: literal loads, ADR, ADD and MOV (DDI 0406C, A8.8).
//!
//! This module decodes them. `displace` executes them, and `moved` encodes them for other places.
//! Conditions are ignored.

use super::t32;

/// The new value of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Number(u32),
    /// The sum of a register and a number.
    Sum(u8, u32),
    /// The word at an address.
    Word(u32),
    /// The word in a table: its address, and a register that is shifted to the left.
    Entry(u32, u8, u8),
}

/// Decodes an A32 instruction at `at`: the register, and its new value.
pub(super) fn a32(code: u32, at: u32) -> Option<(u8, Value)> {
    let register = |low: u32| (code >> low & 15) as u8;
    let destination = register(12);
    let pc = at.wrapping_add(8);
    if destination == 15 || code >> 28 == 15 {
        return None;
    }
    let number = (code & 0xff).rotate_right(2 * (code >> 8 & 15));
    let value = match code >> 16 & 0xfff {
        // LDR (literal): cccc 0101 u001 1111 tttt iiii iiii iiii
        0x51f => Value::Word(pc.wrapping_sub(code & 0xfff)),
        0x59f => Value::Word(pc.wrapping_add(code & 0xfff)),
        // ADR, or ADD and SUB: cccc 0010 1000 1111, cccc 0010 0100 1111
        0x28f => Value::Number(pc.wrapping_add(number)),
        0x24f => Value::Number(pc.wrapping_sub(number)),
        // ADD, unshifted: cccc 0000 1000 1111 dddd 0000 0000 mmmm, or with the program counter as
        // the second operand
        0x08f if code & 0xff0 == 0 && register(0) != 15 => Value::Sum(register(0), pc),
        first if first & 0xff0 == 0x080 && code & 0xfff == 15 && register(16) != 15 => {
            Value::Sum(register(16), pc)
        }
        // MOV: cccc 0001 1010 0000 dddd 0000 0000 1111
        0x1a0 if code & 0xfff == 15 => Value::Number(pc),
        // LDR (register), from a table after the code: cccc 0111 1001 1111 tttt iiii i000 mmmm
        0x79f if code & 0x70 == 0 && register(0) != 15 => {
            Value::Entry(pc, register(0), (code >> 7 & 31) as u8)
        }
        _ => return None,
    };
    Some((destination, value))
}

/// Decodes a T32 instruction at `at`: the register, and its new value.
pub(super) fn t32(first: u16, second: u16, at: u32) -> Option<(u8, Value)> {
    let pc = at.wrapping_add(4);
    let aligned = pc & !3;
    let (code, second) = (u32::from(first), u32::from(second));
    let narrow = (code >> 8 & 7) as u8;
    let behind = aligned.wrapping_add(4 * (code & 0xff));
    match code >> 8 {
        // LDR T1: 0100 1ttt iiii iiii
        0x48..=0x4f => return Some((narrow, Value::Word(behind))),
        // ADR T1: 1010 0ddd iiii iiii
        0xa0..=0xa7 => return Some((narrow, Value::Number(behind))),
        // ADD, MOV: 0100 0100 d111 1ddd, 0100 0110 d111 1ddd
        0x44 | 0x46 if code >> 3 & 15 == 15 => {
            let register = (code & 7 | code >> 4 & 8) as u8;
            let value = match code >> 8 {
                0x44 => Value::Sum(register, pc),
                _ => Value::Number(pc),
            };
            return (register != 15).then_some((register, value));
        }
        _ if !t32::is_wide(first) => return None,
        _ => {}
    }
    let register = (second >> 8 & 15) as u8;
    let number = (code >> 10 & 1) << 11 | (second >> 12 & 7) << 8 | second & 0xff;
    match code {
        // LDR T2: 1111 1000 u101 1111 tttt iiii iiii iiii
        0xf85f | 0xf8df => {
            let register = (second >> 12) as u8;
            let offset = second & 0xfff;
            let address = match code {
                0xf8df => aligned.wrapping_add(offset),
                _ => aligned.wrapping_sub(offset),
            };
            (register != 15).then_some((register, Value::Word(address)))
        }
        // ADR T3, T2: 1111 0i10 0000 1111 0iii dddd iiii iiii, 1111 0i10 1010 1111
        0xf20f | 0xf60f if second & 0x8000 == 0 => {
            Some((register, Value::Number(aligned.wrapping_add(number))))
        }
        0xf2af | 0xf6af if second & 0x8000 == 0 => {
            Some((register, Value::Number(aligned.wrapping_sub(number))))
        }
        _ => None,
    }
}
