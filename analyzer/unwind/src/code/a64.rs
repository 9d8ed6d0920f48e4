//! A64 instructions to effects. Bit patterns are from the Arm Architecture Reference Manual for A-profile
//! (DDI 0487), section C4.1. Every instruction that writes a general register must say so; what
//! it writes matters only for the few that build frames or reach jump tables.

mod memory;

use memory::load_store;

use super::effect::{Effect, Flow, Instruction, Limit, Target};

/// Stack pointer or zero register, as the instruction has it.
const SP: u8 = 31;
const LR: u8 = 30;

fn new() -> Instruction {
    Instruction::new(4)
}

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
fn writes(register: u8) -> Instruction {
    if register == SP {
        new()
    } else {
        new().clobber(1 << register)
    }
}

fn constant(to: u8, value: u64) -> Instruction {
    let low = value as u32;
    if to == SP {
        new()
    } else if u64::from(low) == value || low as i32 as i64 as u64 == value {
        new().effect(Effect::Constant { to, value: low })
    } else {
        writes(to)
    }
}

/// The instruction `w` at `svma`.
pub(crate) fn decode(w: u32, svma: u64) -> Instruction {
    match w >> 25 & 0xf {
        0b1000 | 0b1001 => immediate(w, svma),
        0b1010 | 0b1011 => branch(w, svma),
        // literals have no base
        0b0100 | 0b0110 | 0b1100 | 0b1110 if w >> 28 & 3 == 1 => load_store(w),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => load_store(w).base(register(w, 5)),
        0b0101 | 0b1101 => data_register(w),
        0b0111 | 0b1111 => floating(w),
        // udf: 0000 0000 0000 0000 ....
        0b0000 => new().flow(Flow::Trap),
        // SVE: counts and predicates to general registers
        _ if matches!(w >> 24, 0x04 | 0x25) => writes(register(w, 0)),
        _ => new(),
    }
}

/// C4.1: data processing, immediate
fn immediate(w: u32, svma: u64) -> Instruction {
    let (rd, rn) = (register(w, 0), register(w, 5));
    let wide = bit(w, 31);
    match w >> 23 & 7 {
        // adr, adrp
        0b000 | 0b001 => {
            let offset = i64::from(signed(w, 5, 19)) << 2 | i64::from(w >> 29 & 3);
            constant(
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
                    new().limit(Limit::Compare(value))
                } else {
                    new()
                };
            }
            if !wide || flags && rn != SP {
                return writes(rd);
            }
            let by = value as i32;
            new().effect(Effect::Add {
                to: rd,
                from: rn,
                by: if subtract { -by } else { by },
            })
        }
        // and, orr, eor, ands
        0b100 => match w >> 29 & 3 {
            3 => writes(rd),
            0 if rd == SP => new().effect(Effect::Align { to: SP, from: rn }),
            _ if rd == SP => new().clobber(1 << SP),
            // immr = 0, a run of ones from bit 0
            0 if w >> 16 & 0x3f == 0 && w >> 10 & 0x3f < 31 => {
                writes(rd).limit(Limit::Mask((1 << ((w >> 10 & 0x3f) + 1)) - 1))
            }
            _ => writes(rd),
        },
        // movn, movz, movk
        0b101 => {
            let shift = 16 * (w >> 21 & 3);
            let value = u64::from(w >> 5 & 0xffff) << shift;
            match w >> 29 & 3 {
                0 if wide => constant(rd, !value),
                0 => constant(rd, u64::from(!(value as u32))),
                2 => constant(rd, value),
                3 if shift == 16 && rd != SP => new().effect(Effect::High {
                    to: rd,
                    value: (w >> 5) as u16,
                }),
                _ => writes(rd),
            }
        }
        _ => writes(rd),
    }
}

/// C4.1: branches, exceptions, system
fn branch(w: u32, svma: u64) -> Instruction {
    let to = |low: u32, width: u32| Target {
        svma: svma.wrapping_add_signed(i64::from(signed(w, low, width)) << 2),
        thumb: false,
    };
    match w >> 24 {
        0x14..=0x17 => new().flow(Flow::Jump(to(0, 26))),
        0x94..=0x97 => new().flow(Flow::Call(Some(to(0, 26)))),
        // cbz, cbnz: only those of the system call's result matter
        0x34 | 0xb4 | 0x35 | 0xb5 => new().flow(if register(w, 0) == 0 {
            Flow::IfZero {
                target: to(5, 19),
                nonzero: bit(w, 24),
            }
        } else {
            Flow::Branch(to(5, 19))
        }),
        0x36 | 0xb6 | 0x37 | 0xb7 => new().flow(Flow::Branch(to(5, 14))),
        0x54 => new().flow(match w & 0xf {
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
            (0, 1) => new().effect(Effect::SystemCall),
            (1 | 2, _) => new().flow(Flow::Trap),
            _ => new(),
        },
        0xd5 => system(w),
        0xd6 | 0xd7 => {
            let rn = register(w, 5);
            match w >> 21 & 7 {
                0 => new().flow(Flow::Indirect(Some(rn))),
                1 => new().flow(Flow::Call(None)),
                // ret, retaa, retab; eret
                2 | 4 => new().flow(Flow::Return),
                _ => new().flow(Flow::Trap),
            }
        }
        _ => new(),
    }
}

fn system(w: u32) -> Instruction {
    // hints: 1101 0101 0000 0011 0010 CRm op2 11111
    if w & 0xffff_f01f == 0xd503_201f {
        return match w >> 5 & 0x7f {
            // paciaz, paciasp, pacibz, pacibsp
            24..=27 => new().effect(Effect::Sign(true)),
            // autiaz, autiasp, autibz, autibsp, xpaclri
            28..=31 | 7 => new().effect(Effect::Sign(false)),
            _ => new(),
        };
    }
    // mrs, sysl
    if bit(w, 21) {
        writes(register(w, 0))
    } else {
        new()
    }
}

/// C4.1: data processing, register
fn data_register(w: u32) -> Instruction {
    let (rd, rn, rm) = (register(w, 0), register(w, 5), register(w, 16));
    let wide = bit(w, 31);
    if bit(w, 28) {
        let pointer_authentication = w & 0xffff_0000 == 0xdac1_0000;
        if pointer_authentication && rd == LR {
            // pacia, pacib, ...: 0 to 3; autia, ...: 4 to 7
            return new().effect(Effect::Sign(w >> 12 & 1 == 0));
        }
        // ccmp, ccmn
        return if w >> 21 & 0xf == 0b0010 {
            new()
        } else {
            writes(rd)
        };
    }
    if !bit(w, 24) {
        // mov: orr with the zero register
        let mov = wide && w & 0x7fe0_ffe0 == 0x2a00_03e0;
        if mov && rm != SP && rd != SP {
            return new().effect(Effect::Add {
                to: rd,
                from: rm,
                by: 0,
            });
        }
        return writes(rd);
    }
    let (subtract, flags) = (bit(w, 30), bit(w, 29));
    if bit(w, 21) {
        // extended: 31 is sp, save for a destination with flags
        if flags {
            return writes(rd);
        }
        let option = w >> 13 & 7;
        if wide && rm != SP {
            return new().effect(Effect::AddRegister {
                to: rd,
                from: rn,
                by: rm,
                subtract,
                shift: (w >> 10 & 7) as u8,
                // sxtb to sxtx
                signed: option >= 4,
            });
        }
        return new().clobber(1 << rd);
    }
    let shifted_left = w >> 22 & 3 == 0;
    if wide && !flags && shifted_left && rd != SP && rn != SP && rm != SP {
        return new().effect(Effect::AddRegister {
            to: rd,
            from: rn,
            by: rm,
            subtract,
            shift: (w >> 10 & 0x3f) as u8,
            signed: false,
        });
    }
    writes(rd)
}

/// C4.1: floating point and vectors: what gets to general registers
fn floating(w: u32) -> Instruction {
    let opcode = w >> 16 & 7;
    // fcvt.., fmov: s001 1110 tt1r rooo 0000 00nn nnnd dddd
    let converts = w & 0x5f20_fc00 == 0x1e20_0000 && matches!(opcode, 0 | 1 | 4 | 5 | 6);
    // the same with fixed point
    let fixed = w & 0x5f20_0000 == 0x1e00_0000 && matches!(opcode, 0 | 1);
    // umov, smov: 0q00 1110 000i iiii 001u 11nn nnnd dddd
    let moves = matches!(w & 0xbfe0_fc00, 0x0e00_3c00 | 0x0e00_2c00);
    if converts || fixed || moves {
        writes(register(w, 0))
    } else {
        new()
    }
}
