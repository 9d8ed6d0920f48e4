//! Decodes A64 instructions to effects.
//!
//! Bit patterns are from the Arm Architecture Reference Manual for A-profile (DDI 0487), section
//! C4.1. Every write to a general register must be reported. The written value matters only for the
//! few instructions that build frames or use jump tables.

mod memory;

use memory::load_store;

use super::effect::{Effect, Flow, InstructionBuilder, Limit, Target};

/// The encoding of the stack pointer or the zero register.
const SP: u8 = 31;
const LR: u8 = 30;

fn register(w: u32, low: u32) -> u8 {
    (w >> low & 31) as u8
}

fn bit(w: u32, n: u32) -> bool {
    w >> n & 1 == 1
}

/// `width` bits from `low`, sign-extended.
fn signed(w: u32, low: u32, width: u32) -> i32 {
    (w << (32 - low - width)) as i32 >> (32 - width)
}

/// A write to a register where 31 is the zero register.
fn writes(builder: InstructionBuilder<'_>, register: u8) -> InstructionBuilder<'_> {
    if register == SP {
        builder
    } else {
        builder.clobber(1 << register)
    }
}

fn constant(builder: InstructionBuilder<'_>, to: u8, value: u64) -> InstructionBuilder<'_> {
    let low = value as u32;
    if to == SP {
        builder
    } else if u64::from(low) == value || low as i32 as i64 as u64 == value {
        builder.effect(Effect::Constant { to, value: low })
    } else {
        writes(builder, to)
    }
}

/// Decodes the instruction `w` at `svma`.
pub(crate) fn decode(builder: InstructionBuilder<'_>, w: u32, svma: u64) -> InstructionBuilder<'_> {
    match w >> 25 & 0xf {
        0b1000 | 0b1001 => immediate(builder, w, svma),
        0b1010 | 0b1011 => branch(builder, w, svma),
        // literals have no base
        0b0100 | 0b0110 | 0b1100 | 0b1110 if w >> 28 & 3 == 1 => load_store(builder, w),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => load_store(builder, w).base(register(w, 5)),
        0b0101 | 0b1101 => data_register(builder, w),
        0b0111 | 0b1111 => floating(builder, w),
        // SME; udf: 0000 0000 0000 0000 ....
        0b0000 if bit(w, 31) => builder,
        0b0000 => builder.flow(Flow::Trap),
        // SVE: counts and predicates to general registers
        _ if matches!(w >> 24, 0x04 | 0x25) => writes(builder, register(w, 0)),
        _ => builder,
    }
}

/// C4.1: data processing, immediate
fn immediate(builder: InstructionBuilder<'_>, w: u32, svma: u64) -> InstructionBuilder<'_> {
    let (rd, rn) = (register(w, 0), register(w, 5));
    let wide = bit(w, 31);
    match w >> 23 & 7 {
        // adr, adrp
        0b000 | 0b001 => {
            let offset = i64::from(signed(w, 5, 19)) << 2 | i64::from(w >> 29 & 3);
            constant(
                builder,
                rd,
                if wide {
                    (svma & !0xfff).wrapping_add_signed(offset << 12)
                } else {
                    svma.wrapping_add_signed(offset)
                },
            )
        }
        // add, sub
        0b010 => {
            let value = (w >> 10 & 0xfff) << if bit(w, 22) { 12 } else { 0 };
            let (subtract, flags) = (bit(w, 30), bit(w, 29));
            if flags && rd == SP {
                return if subtract {
                    builder.limit(Limit::Compare(value))
                } else {
                    builder
                };
            }
            if !wide && !flags && rd == SP {
                return builder.clobber(1 << SP);
            }
            if !wide || flags && rn != SP {
                return writes(builder, rd);
            }
            let by = value as i32;
            builder.effect(Effect::Add {
                to: rd,
                from: rn,
                by: if subtract { -by } else { by },
            })
        }
        // and, orr, eor, ands
        0b100 => match w >> 29 & 3 {
            3 => writes(builder, rd),
            0 if rd == SP => builder.effect(Effect::Align { to: SP, from: rn }),
            _ if rd == SP => builder.clobber(1 << SP),
            // immr = 0, a run of ones from bit 0
            0 if w >> 16 & 0x3f == 0 && w >> 10 & 0x3f < 31 => {
                writes(builder, rd).limit(Limit::Mask((1 << ((w >> 10 & 0x3f) + 1)) - 1))
            }
            _ => writes(builder, rd),
        },
        // movn, movz, movk
        0b101 => {
            let shift = 16 * (w >> 21 & 3);
            let value = u64::from(w >> 5 & 0xffff) << shift;
            match w >> 29 & 3 {
                0 if wide => constant(builder, rd, !value),
                0 => constant(builder, rd, u64::from(!(value as u32))),
                2 => constant(builder, rd, value),
                3 if shift == 16 && rd != SP => builder.effect(Effect::High {
                    to: rd,
                    value: (w >> 5) as u16,
                }),
                _ => writes(builder, rd),
            }
        }
        _ => writes(builder, rd),
    }
}

/// C4.1: branches, exceptions, system
fn branch(builder: InstructionBuilder<'_>, w: u32, svma: u64) -> InstructionBuilder<'_> {
    let to = |low: u32, width: u32| Target {
        svma: svma.wrapping_add_signed(i64::from(signed(w, low, width)) << 2),
        thumb: false,
    };
    match w >> 24 {
        0x14..=0x17 => builder.flow(Flow::Jump(to(0, 26))),
        0x94..=0x97 => builder.flow(Flow::Call(Some(to(0, 26)))),
        // cbz, cbnz: only the register of the system call's result matters
        0x34 | 0xb4 | 0x35 | 0xb5 => builder.flow(if register(w, 0) == 0 {
            Flow::IfZero {
                target: to(5, 19),
                nonzero: bit(w, 24),
            }
        } else {
            Flow::Branch(to(5, 19))
        }),
        0x36 | 0xb6 | 0x37 | 0xb7 => builder.flow(Flow::Branch(to(5, 14))),
        0x54 => builder.flow(match w & 0xf {
            0 => Flow::IfZero {
                target: to(5, 19),
                nonzero: false,
            },
            1 => Flow::IfZero {
                target: to(5, 19),
                nonzero: true,
            },
            14 | 15 => Flow::Jump(to(5, 19)),
            _ => Flow::Branch(to(5, 19)),
        }),
        // svc, brk, hlt
        0xd4 => match (w >> 21 & 7, w & 3) {
            (0, 1) => builder.effect(Effect::SystemCall),
            (1 | 2, _) => builder.flow(Flow::Trap),
            _ => builder,
        },
        0xd5 => system(builder, w),
        0xd6 | 0xd7 => {
            let rn = register(w, 5);
            match w >> 21 & 7 {
                0 => builder.flow(Flow::Indirect(Some(rn))),
                1 => builder.flow(Flow::Call(None)),
                // ret, retaa, retab; eret
                2 | 4 => builder.flow(Flow::Return),
                _ => builder.flow(Flow::Trap),
            }
        }
        _ => builder,
    }
}

fn system(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    // hints: 1101 0101 0000 0011 0010 CRm op2 11111
    if w & 0xffff_f01f == 0xd503_201f {
        return match w >> 5 & 0x7f {
            // paciaz, paciasp, pacibz, pacibsp
            24..=27 => builder.effect(Effect::Sign(true)),
            // autiaz, autiasp, autibz, autibsp, xpaclri
            28..=31 | 7 => builder.effect(Effect::Sign(false)),
            _ => builder,
        };
    }
    // mrs, sysl
    if bit(w, 21) {
        writes(builder, register(w, 0))
    } else {
        builder
    }
}

/// C4.1: data processing, register
fn data_register(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    let (rd, rn, rm) = (register(w, 0), register(w, 5), register(w, 16));
    let wide = bit(w, 31);
    if bit(w, 28) {
        let pointer_authentication = w & 0xffff_0000 == 0xdac1_0000;
        if pointer_authentication && rd == LR {
            // pacia, pacib, ...: 0 to 3; autia, ...: 4 to 7
            return builder.effect(Effect::Sign(w >> 12 & 1 == 0));
        }
        // ccmp, ccmn
        return if w >> 21 & 0xf == 0b0010 {
            builder
        } else {
            writes(builder, rd)
        };
    }
    if !bit(w, 24) {
        // mov: orr with the zero register
        let mov = wide && w & 0x7fe0_ffe0 == 0x2a00_03e0;
        if mov && rm != SP && rd != SP {
            return builder.effect(Effect::Add {
                to: rd,
                from: rm,
                by: 0,
            });
        }
        return writes(builder, rd);
    }
    let (subtract, flags) = (bit(w, 30), bit(w, 29));
    if bit(w, 21) {
        // extended: 31 is sp, except for a destination with flags
        if flags {
            return writes(builder, rd);
        }
        let option = w >> 13 & 7;
        if wide && rm != SP {
            return builder.effect(Effect::AddRegister {
                to: rd,
                from: rn,
                by: rm,
                subtract,
                shift: (w >> 10 & 7) as u8,
                // sxtb to sxtx
                signed: option >= 4,
            });
        }
        return builder.clobber(1 << rd);
    }
    let shifted_left = w >> 22 & 3 == 0;
    if wide && !flags && shifted_left && rd != SP && rn != SP && rm != SP {
        return builder.effect(Effect::AddRegister {
            to: rd,
            from: rn,
            by: rm,
            subtract,
            shift: (w >> 10 & 0x3f) as u8,
            signed: false,
        });
    }
    writes(builder, rd)
}

/// C4.1: floating point and vector instructions that write general registers
fn floating(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    let opcode = w >> 16 & 7;
    // fcvt.., fmov: s001 1110 tt1r rooo 0000 00nn nnnd dddd
    let converts = w & 0x5f20_fc00 == 0x1e20_0000 && matches!(opcode, 0 | 1 | 4 | 5 | 6);
    // the same with fixed point
    let fixed = w & 0x5f20_0000 == 0x1e00_0000 && matches!(opcode, 0 | 1);
    // umov, smov: 0q00 1110 000i iiii 001u 11nn nnnd dddd
    let moves = matches!(w & 0xbfe0_fc00, 0x0e00_3c00 | 0x0e00_2c00);
    if converts || fixed || moves {
        writes(builder, register(w, 0))
    } else {
        builder
    }
}
