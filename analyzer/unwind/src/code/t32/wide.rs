//! Decodes the 32-bit instructions of T32 (ARM ARM, A6.3).

use super::{PC, SP, target};
use crate::code::a32::{Address, WORD, block, coprocessor_transfer, data};
use crate::code::effect::{Effect, Flow, InstructionBuilder, Limit, Table, TableForm, Target};

/// Decodes the 32-bit instruction `a`, `b` at `svma`.
pub(crate) fn decode_wide(
    builder: InstructionBuilder<'_>,
    a: u16,
    b: u16,
    svma: u64,
) -> InstructionBuilder<'_> {
    let (a, b) = (u32::from(a), u32::from(b));
    match a >> 11 & 3 {
        0b01 => match a >> 9 & 3 {
            0b00 if a >> 6 & 1 == 0 => multiple(builder, a, b),
            0b00 => dual_exclusive_table(builder, a, b, svma),
            0b01 => shifted_register(builder, a, b),
            _ => coprocessor(builder, a, b, svma),
        },
        0b10 if b >> 15 & 1 == 0 => immediate(builder, a, b, svma),
        0b10 => branch(builder, a, b, svma),
        _ => match a >> 9 & 3 {
            0b00 => single(builder, a, b, svma),
            0b01 => {
                let rd = (b >> 8 & 0xf) as u8;
                match a >> 7 & 3 {
                    // register shifts, extends, parallel add; multiplies
                    0b00..=0b10 => builder.clobber(1 << rd & 0x7fff),
                    _ => builder.clobber((1 << rd | 1 << (b >> 12 & 0xf)) & 0x7fff),
                }
            }
            _ => coprocessor(builder, a, b, svma),
        },
    }
}

/// A6.3.5: stm, ldm, push, pop
fn multiple(builder: InstructionBuilder<'_>, a: u32, b: u32) -> InstructionBuilder<'_> {
    let rn = (a & 0xf) as u8;
    let (write, load) = (a >> 5 & 1 == 1, a >> 4 & 1 == 1);
    match a >> 7 & 3 {
        0b01 => block(builder, rn, b, (false, true), write, load),
        0b10 => block(builder, rn, b, (true, false), write, load),
        _ => builder.flow(Flow::Trap),
    }
}

/// A6.3.6
fn dual_exclusive_table(
    builder: InstructionBuilder<'_>,
    a: u32,
    b: u32,
    svma: u64,
) -> InstructionBuilder<'_> {
    let rn = (a & 0xf) as u8;
    let (rt, rt2) = ((b >> 12 & 0xf) as u8, (b >> 8 & 0xf) as u8);
    let load = a >> 4 & 1 == 1;
    let (p, u, w) = (a >> 8 & 1 == 1, a >> 7 & 1 == 1, a >> 5 & 1 == 1);
    if !p && !w {
        // tbb, tbh: 1110 1000 1101 nnnn 1111 0000 000H mmmm
        if a & 0xfff0 == 0xe8d0 && b & 0xffe0 == 0xf000 {
            return builder.flow(Flow::Table(Table {
                svma: (rn == PC).then_some(svma + 4),
                base: rn,
                form: if b >> 4 & 1 == 1 {
                    TableForm::Halfwords
                } else {
                    TableForm::Bytes
                },
            }));
        }
        // ldrex and similar write rt, rt2; strex rd at 8, strexb at 0
        let mask = match (load, a & 0x00e0) {
            (true, _) => 1 << rt | 1 << rt2,
            (false, 0x40) => 1 << rt2,
            _ => 1 << (b & 0xf),
        };
        return builder.clobber(mask & 0x7fff);
    }
    let offset = ((b & 0xff) << 2) as i32;
    let address = Address {
        rn,
        offset: Some(if u { offset } else { -offset }),
        index: p,
        write: w,
    };
    let mask = 1u32 << rt | 1 << rt2;
    if rn == PC {
        let at =
            (svma.wrapping_add(4) & !3).wrapping_add_signed(address.offset.unwrap_or(0).into());
        return data(builder, at, 8).clobber(mask & 0x7fff);
    }
    // The pair is stored in the order rt, rt2, but a mask in the order of numbers.
    let ordered = rt < rt2;
    if load && ordered {
        address.transfer(builder, |base, offset| Effect::Load { base, offset, mask })
    } else if load {
        address.transfer(builder, |_, _| Effect::Clobber(mask & 0x7fff))
    } else if ordered {
        address.transfer(builder, |base, offset| Effect::Store { base, offset, mask })
    } else if p {
        let first = if w { 0 } else { address.offset.unwrap_or(0) };
        let mut instruction = builder;
        if w {
            instruction = instruction.effect(Effect::Add {
                to: rn,
                from: rn,
                by: address.offset.unwrap_or(0),
            });
        }
        instruction
            .effect(Effect::Store {
                base: rn,
                offset: first,
                mask: 1 << rt,
            })
            .effect(Effect::Store {
                base: rn,
                offset: first + 4,
                mask: 1 << rt2,
            })
    } else {
        address.transfer(builder, |_, _| Effect::Clobber(0))
    }
}

/// A6.3.11
fn shifted_register(builder: InstructionBuilder<'_>, a: u32, b: u32) -> InstructionBuilder<'_> {
    let (rn, rd, rm) = ((a & 0xf) as u8, (b >> 8 & 0xf) as u8, (b & 0xf) as u8);
    let plain = b & 0x70f0 == 0;
    match a >> 5 & 0xf {
        0b0010 if rn == PC && plain => builder.effect(Effect::Add {
            to: rd,
            from: rm,
            by: 0,
        }),
        op @ (0b1000 | 0b1101) if plain && rd != PC => builder.effect(Effect::AddRegister {
            to: rd,
            from: rn,
            by: rm,
            subtract: op == 0b1101,
            shift: 0,
            signed: true,
        }),
        // add rd, rn, rm, lsl #n
        0b1000 if b & 0x30 == 0 && rd != PC => builder.effect(Effect::AddRegister {
            to: rd,
            from: rn,
            by: rm,
            subtract: false,
            shift: (b >> 10 & 0x1c | b >> 6 & 3) as u8,
            signed: true,
        }),
        _ => builder.clobber(1 << rd & 0x7fff),
    }
}

fn coprocessor(
    builder: InstructionBuilder<'_>,
    a: u32,
    b: u32,
    svma: u64,
) -> InstructionBuilder<'_> {
    let w = a << 16 | b;
    match w >> 25 & 7 {
        // 110: loads, stores and two-register moves
        0b110 => coprocessor_transfer(builder, w, svma.wrapping_add(4) & !3),
        // 111: mrc and vmov to a core register; data processing. 111 1 1111 and 111 0 1111 are
        // NEON.
        _ if w >> 24 & 0xf == 0b1110 && w >> 4 & 1 == 1 && w >> 20 & 1 == 1 => {
            let rt = w >> 12 & 0xf;
            builder.clobber(1 << rt & 0x7fff)
        }
        _ => builder,
    }
}

/// ARM ARM A6.3.2, ThumbExpandImm
fn expand(a: u32, b: u32) -> u32 {
    let imm12 = (a >> 10 & 1) << 11 | (b >> 12 & 7) << 8 | b & 0xff;
    let byte = imm12 & 0xff;
    if imm12 >> 10 == 0 {
        match imm12 >> 8 & 3 {
            0 => byte,
            1 => byte << 16 | byte,
            2 => byte << 24 | byte << 8,
            _ => byte * 0x0101_0101,
        }
    } else {
        (0x80 | byte & 0x7f).rotate_right(imm12 >> 7)
    }
}

/// A6.3.1, A6.3.3
fn immediate(builder: InstructionBuilder<'_>, a: u32, b: u32, svma: u64) -> InstructionBuilder<'_> {
    let (rn, rd) = ((a & 0xf) as u8, (b >> 8 & 0xf) as u8);
    let pc = (svma as u32).wrapping_add(4) & !3;
    if a >> 9 & 1 == 0 {
        let value = expand(a, b);
        let add = |by: u32| Effect::Add {
            to: rd,
            from: rn,
            by: by as i32,
        };
        return match a >> 5 & 0xf {
            0b0010 if rn == PC => builder.effect(Effect::Constant { to: rd, value }),
            0b0011 if rn == PC => builder.effect(Effect::Constant {
                to: rd,
                value: !value,
            }),
            // orr rd, rn, #1: T32
            0b0010 if value == 1 => builder.effect(Effect::Add {
                to: rd,
                from: rn,
                by: 0,
            }),
            0b1101 if rd == PC => builder.limit(Limit::Compare(value)),
            // tst, teq, cmn
            0b0000 | 0b0100 | 0b1000 if rd == PC => builder,
            0b1000 => builder.effect(add(value)),
            0b1101 => builder.effect(add(value.wrapping_neg())),
            _ => builder.clobber(1 << rd & 0x7fff),
        };
    }
    let imm12 = (a >> 10 & 1) << 11 | (b >> 12 & 7) << 8 | b & 0xff;
    let half = (a & 0xf) << 12 | imm12;
    match a >> 4 & 0x1f {
        0b00000 if rn == PC => builder.effect(Effect::Constant {
            to: rd,
            value: pc.wrapping_add(imm12),
        }),
        0b01010 if rn == PC => builder.effect(Effect::Constant {
            to: rd,
            value: pc.wrapping_sub(imm12),
        }),
        0b00000 => builder.effect(Effect::Add {
            to: rd,
            from: rn,
            by: imm12 as i32,
        }),
        0b01010 => builder.effect(Effect::Add {
            to: rd,
            from: rn,
            by: -(imm12 as i32),
        }),
        0b00100 => builder.effect(Effect::Constant {
            to: rd,
            value: half,
        }),
        0b01100 => builder.effect(Effect::High {
            to: rd,
            value: half as u16,
        }),
        _ => builder.clobber(1 << rd & 0x7fff),
    }
}

/// A6.3.4
fn branch(builder: InstructionBuilder<'_>, a: u32, b: u32, svma: u64) -> InstructionBuilder<'_> {
    let sign = a >> 10 & 1;
    let (j1, j2) = (b >> 13 & 1, b >> 11 & 1);
    let high = (a & 0x3ff) << 12;
    let low = (b & 0x7ff) << 1;
    let far = || {
        let i1 = (j1 ^ sign ^ 1) << 23;
        let i2 = (j2 ^ sign ^ 1) << 22;
        let offset = (sign << 24 | i1 | i2 | high | low) << 7;
        i64::from(offset as i32 >> 7)
    };
    match (b >> 14 & 1, b >> 12 & 1) {
        (0, 0) if a >> 7 & 7 != 7 => {
            let offset = sign << 20 | j2 << 19 | j1 << 18 | (a & 0x3f) << 12 | low;
            let instruction = builder.flow(Flow::Jump(Target {
                svma: target(svma, i64::from((offset << 11) as i32 >> 11)),
                thumb: true,
            }));
            instruction.0.condition = (a >> 6 & 0xf) as u8;
            instruction
        }
        // udf: 1111 0111 1111 .... 1010
        (0, 0) if a & 0xfff0 == 0xf7f0 => builder.flow(Flow::Trap),
        // mrs: 1111 0011 111. .... 10.0 dddd
        (0, 0) if a & 0xffe0 == 0xf3e0 => builder.clobber(1 << (b >> 8 & 0xf) & 0x7fff),
        (0, 0) => builder,
        (0, _) => builder.flow(Flow::Jump(Target {
            svma: target(svma, far()),
            thumb: true,
        })),
        (_, 1) => builder.flow(Flow::Call(Some(Target {
            svma: target(svma, far()),
            thumb: true,
        }))),
        _ => builder.flow(Flow::Call(Some(Target {
            svma: target(svma & !3, far()) & !3,
            thumb: false,
        }))),
    }
}

/// A6.3.7 to A6.3.10: 1111 100S sizL
fn single(builder: InstructionBuilder<'_>, a: u32, b: u32, svma: u64) -> InstructionBuilder<'_> {
    let (rn, rt) = ((a & 0xf) as u8, (b >> 12 & 0xf) as u8);
    let (load, size, signed) = (a >> 4 & 1 == 1, a >> 5 & 3, a >> 8 & 1 == 1);
    if signed && !load {
        // NEON element and structure loads; see `a32`
        return if b & 0xf == 15 {
            builder
        } else {
            builder.clobber(1 << rn)
        };
    }
    let word = size == 2 && !signed;
    if rt == PC && load && !word {
        // preload hints
        return builder;
    }
    let mask = 1u32 << rt;
    if rn == PC {
        let offset = i64::from(b & 0xfff);
        let offset = if a >> 7 & 1 == 1 { offset } else { -offset };
        let at = (svma.wrapping_add(4) & !3).wrapping_add_signed(offset) & 0xffff_ffff;
        return match (word, rt) {
            (true, PC) => builder.flow(Flow::Indirect(None)),
            (true, _) => builder.effect(Effect::Literal {
                to: rt,
                svma: at as u32,
            }),
            _ => data(builder, at, 4).clobber(mask),
        };
    }
    let address = if a >> 7 & 1 == 1 {
        Address {
            rn,
            offset: Some((b & 0xfff) as i32),
            index: true,
            write: false,
        }
    } else if b >> 11 & 1 == 1 {
        let offset = (b & 0xff) as i32;
        Address {
            rn,
            offset: Some(if b >> 9 & 1 == 1 { offset } else { -offset }),
            index: b >> 10 & 1 == 1,
            write: b >> 8 & 1 == 1,
        }
    } else {
        if load && word && rt == PC {
            // ldr pc, [rn, rm, lsl #2]
            return builder.flow(if b >> 4 & 3 == 2 {
                Flow::Table(Table {
                    svma: None,
                    base: rn,
                    form: TableForm::Addresses,
                })
            } else {
                Flow::Indirect(None)
            });
        }
        if load && word && b >> 4 & 3 == 2 {
            return builder.effect(Effect::Indexed {
                to: rt,
                base: rn,
                entry: WORD,
            });
        }
        Address {
            rn,
            offset: None,
            index: true,
            write: false,
        }
    };
    if load && rt == PC {
        let instruction = address.transfer(builder, |_, _| Effect::Clobber(0));
        return instruction.flow(if rn == SP && address.write {
            Flow::Return
        } else {
            Flow::Indirect(None)
        });
    }
    match (load, word) {
        (false, true) => {
            address.transfer(builder, |base, offset| Effect::Store { base, offset, mask })
        }
        (false, false) => address.transfer(builder, |_, _| Effect::Clobber(0)),
        (true, true) => {
            address.transfer(builder, |base, offset| Effect::Load { base, offset, mask })
        }
        (true, false) => address.transfer(builder, |_, _| Effect::Clobber(mask)),
    }
}
