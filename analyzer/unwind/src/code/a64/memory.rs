//! Loads and stores of A64 (C4.1).

use super::{SP, bit, register, signed, writes};
use crate::code::effect::{Effect, Entry, InstructionBuilder};

/// C4.1: loads and stores
pub(super) fn load_store(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    let (rt, rn, rs) = (register(w, 0), register(w, 5), register(w, 16));
    let vector = bit(w, 26);
    match w >> 28 & 3 {
        // structures: post-index writes the base
        0b00 if vector => {
            if bit(w, 23) {
                builder.clobber(1 << rn)
            } else {
                builder
            }
        }
        // exclusive, ordered, compare and swap
        0b00 => {
            let mut mask = 0u32;
            if bit(w, 22) {
                mask |= 1 << rt;
            }
            if bit(w, 21) {
                mask |= 1 << register(w, 10) | 1 << rs | 1 << (rs | 1);
            }
            if !bit(w, 22) && !bit(w, 23) {
                mask |= 1 << rs;
            }
            builder.clobber(mask & 0x7fff_ffff)
        }
        0b01 if bit(w, 24) && bit(w, 21) => tags(builder, w),
        0b01 if bit(w, 24) => {
            // ldapur, stlur
            if w >> 22 & 3 != 0 {
                writes(builder, rt)
            } else {
                builder
            }
        }
        // literals
        0b01 => {
            if vector || w >> 30 == 3 {
                builder
            } else {
                writes(builder, rt)
            }
        }
        0b10 => pair(builder, w, rt, rn, vector),
        _ => single(builder, w, rt, rn, vector),
    }
}

/// Memory tags: 1101 1001 opc 1 imm9 op2 Rn Rt
fn tags(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    let (rt, rn) = (register(w, 0), register(w, 5));
    let mode = match w >> 10 & 3 {
        // ldg, ldgm; stzgm, stgm
        0 if bit(w, 22) => return writes(builder, rt),
        0 => return builder,
        1 => Mode::Post,
        2 => Mode::Offset,
        _ => Mode::Pre,
    };
    transfer(builder, false, rn, signed(w, 12, 9) * 16, mode, &[])
}

/// The time at which the base register changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Offset,
    Pre,
    Post,
}

/// A load or store of up to two 8-byte registers, and the change of the base register.
fn transfer<'m>(
    builder: InstructionBuilder<'m>,
    load: bool,
    base: u8,
    offset: i32,
    mode: Mode,
    registers: &[(u8, i32)],
) -> InstructionBuilder<'m> {
    let add = Effect::Add {
        to: base,
        from: base,
        by: offset,
    };
    let mut instruction = builder;
    if mode == Mode::Pre {
        // A store below sp would be forgotten when sp moves, so move sp first.
        instruction = instruction.effect(add);
    }
    let start = if mode == Mode::Offset { offset } else { 0 };
    for &(register, at) in registers.iter().filter(|(register, _)| *register != SP) {
        let (offset, mask) = (start + at, 1u32 << register);
        instruction = instruction.effect(if load {
            Effect::Load { base, offset, mask }
        } else {
            Effect::Store { base, offset, mask }
        });
    }
    if mode == Mode::Post {
        instruction = instruction.effect(add);
    }
    instruction
}

fn pair(
    builder: InstructionBuilder<'_>,
    w: u32,
    rt: u8,
    rn: u8,
    vector: bool,
) -> InstructionBuilder<'_> {
    let (opc, load, rt2) = (w >> 30, bit(w, 22), register(w, 10));
    let scale = match (vector, opc) {
        (true, opc) => 4 << opc,
        (false, 2) => 8,
        // stgp
        (false, 1) if !load => 16,
        (false, _) => 4,
    };
    let offset = signed(w, 15, 7) * scale;
    let mode = match w >> 23 & 3 {
        1 => Mode::Post,
        3 => Mode::Pre,
        _ => Mode::Offset,
    };
    if !vector && opc == 2 {
        // The base register comes last, in case it is loaded.
        let registers = if load && rt == rn {
            [(rt2, 8), (rt, 0)]
        } else {
            [(rt, 0), (rt2, 8)]
        };
        return transfer(builder, load, rn, offset, mode, &registers);
    }
    let instruction = transfer(builder, load, rn, offset, mode, &[]);
    if !vector && load {
        instruction.clobber((1 << rt | 1 << rt2) & 0x7fff_ffff)
    } else {
        instruction
    }
}

fn single(
    builder: InstructionBuilder<'_>,
    w: u32,
    rt: u8,
    rn: u8,
    vector: bool,
) -> InstructionBuilder<'_> {
    let (size, opc) = (w >> 30, w >> 22 & 3);
    let prefetch = size == 3 && opc == 2 && !vector;
    let load = if vector { opc & 1 == 1 } else { opc != 0 };
    let (offset, mode) = if bit(w, 24) {
        let scale = if vector && opc >= 2 { 4 } else { size };
        (((w >> 10 & 0xfff) << scale) as i32, Mode::Offset)
    } else if !bit(w, 21) {
        let mode = match w >> 10 & 3 {
            1 => Mode::Post,
            3 => Mode::Pre,
            _ => Mode::Offset,
        };
        (signed(w, 12, 9), mode)
    } else {
        return match w >> 10 & 3 {
            _ if vector => builder,
            0b10 if prefetch => builder,
            // the offset is a register
            0b10 if load => {
                if rt == SP {
                    return builder;
                }
                builder.effect(Effect::Indexed {
                    to: rt,
                    base: rn,
                    entry: Entry {
                        size: 1 << size,
                        signed: opc >= 2,
                    },
                })
            }
            0b10 => builder,
            // atomics return the old value
            0b00 => writes(builder, rt),
            // ldraa, ldrab
            _ if bit(w, 11) => writes(builder, rt).clobber(1 << rn),
            _ => writes(builder, rt),
        };
    };
    if vector || prefetch {
        return transfer(builder, load, rn, offset, mode, &[]);
    }
    if size == 3 && opc < 2 {
        return transfer(builder, load, rn, offset, mode, &[(rt, 0)]);
    }
    let instruction = transfer(builder, load, rn, offset, mode, &[]);
    if load && rt != SP {
        instruction.clobber(1 << rt)
    } else {
        instruction
    }
}
