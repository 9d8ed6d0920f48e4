//! Decodes T32 and T16 instructions to effects.
//!
//! Bit patterns are from the ARM ARM (Armv7-A), chapter A6. Loads, stores and coprocessor transfers
//! have the same meaning as in `a32`.

mod wide;

use super::a32::block;
use super::effect::{Effect, Flow, InstructionBuilder, Limit, Target};

pub(super) use wide::decode_wide;

const SP: u8 = 13;
const LR: u8 = 14;
const PC: u8 = 15;

/// Whether `first` is the first half of a 32-bit instruction.
pub(crate) fn is_wide(first: u16) -> bool {
    first >= 0xe800
}

/// Decodes the 16-bit instruction `h` at `svma`.
pub(crate) fn decode_narrow(
    builder: InstructionBuilder<'_>,
    h: u16,
    svma: u64,
) -> InstructionBuilder<'_> {
    let h = u32::from(h);
    let low = |at: u32| (h >> at & 7) as u8;
    let pc = (svma as u32).wrapping_add(4);
    match h >> 11 {
        // lsl (0: mov), lsr, asr
        0b00000 if h >> 6 & 0x1f == 0 => builder.effect(Effect::Add {
            to: low(0),
            from: low(3),
            by: 0,
        }),
        0b00000..=0b00010 => builder.clobber(1 << low(0)),
        // add, sub: register or 3-bit immediate
        0b00011 => {
            let by = low(6);
            let subtract = h >> 9 & 1 == 1;
            if h >> 10 & 1 == 1 {
                let by = i32::from(by);
                builder.effect(Effect::Add {
                    to: low(0),
                    from: low(3),
                    by: if subtract { -by } else { by },
                })
            } else {
                builder.effect(Effect::AddRegister {
                    to: low(0),
                    from: low(3),
                    by,
                    subtract,
                    shift: 0,
                    signed: true,
                })
            }
        }
        0b00100 => builder.effect(Effect::Constant {
            to: low(8),
            value: h & 0xff,
        }),
        0b00101 => builder.limit(Limit::Compare(h & 0xff)),
        0b00110 | 0b00111 => {
            let by = (h & 0xff) as i32;
            builder.effect(Effect::Add {
                to: low(8),
                from: low(8),
                by: if h >> 11 & 1 == 1 { -by } else { by },
            })
        }
        0b01000 if h >> 10 & 1 == 0 => match h >> 6 & 0xf {
            0b1000 | 0b1010 | 0b1011 => builder, // tst, cmp, cmn
            _ => builder.clobber(1 << low(0)),
        },
        0b01000 => special(builder, h, svma),
        0b01001 => builder.effect(Effect::Literal {
            to: low(8),
            svma: (pc & !3).wrapping_add((h & 0xff) << 2),
        }),
        // str, strh, strb, ldrsb, ldr, ldrh, ldrb, ldrsh by register
        0b01010 | 0b01011 => match h >> 9 & 7 {
            0..=2 => builder,
            _ => builder.clobber(1 << low(0)),
        },
        0b01100 => builder.effect(Effect::Store {
            base: low(3),
            offset: (h >> 6 & 0x1f) as i32 * 4,
            mask: 1 << low(0),
        }),
        0b01101 => builder.effect(Effect::Load {
            base: low(3),
            offset: (h >> 6 & 0x1f) as i32 * 4,
            mask: 1 << low(0),
        }),
        0b01110 | 0b10000 => builder,
        0b01111 | 0b10001 => builder.clobber(1 << low(0)),
        0b10010 => builder.effect(Effect::Store {
            base: SP,
            offset: (h & 0xff) as i32 * 4,
            mask: 1 << low(8),
        }),
        0b10011 => builder.effect(Effect::Load {
            base: SP,
            offset: (h & 0xff) as i32 * 4,
            mask: 1 << low(8),
        }),
        // adr; add rd, sp
        0b10100 => builder.effect(Effect::Constant {
            to: low(8),
            value: (pc & !3).wrapping_add((h & 0xff) << 2),
        }),
        0b10101 => builder.effect(Effect::Add {
            to: low(8),
            from: SP,
            by: (h & 0xff) as i32 * 4,
        }),
        0b10110 | 0b10111 => miscellaneous(builder, h, svma),
        0b11000 => block(builder, low(8), h & 0xff, (false, true), true, false),
        0b11001 => block(builder, low(8), h & 0xff, (false, true), true, true),
        0b11010 | 0b11011 => match h >> 8 & 0xf {
            14 => builder.flow(Flow::Trap),
            15 => builder.effect(Effect::SystemCall),
            condition => {
                let instruction = builder.flow(Flow::Jump(Target {
                    svma: target(svma, i64::from((h << 24) as i32 >> 23)),
                    thumb: true,
                }));
                instruction.0.condition = condition as u8;
                instruction
            }
        },
        // 11100: b
        _ => builder.flow(Flow::Jump(Target {
            svma: target(svma, i64::from((h << 21) as i32 >> 20)),
            thumb: true,
        })),
    }
}

fn target(svma: u64, offset: i64) -> u64 {
    svma.wrapping_add(4).wrapping_add_signed(offset) & 0xffff_ffff
}

/// A6.2.3: 010001xx, high registers and bx
fn special(builder: InstructionBuilder<'_>, h: u32, svma: u64) -> InstructionBuilder<'_> {
    let rd = (h & 7 | h >> 4 & 8) as u8;
    let rm = (h >> 3 & 0xf) as u8;
    match h >> 8 & 3 {
        0b00 if rd == PC && rm != PC => builder
            .effect(Effect::Constant {
                to: PC,
                value: (svma as u32).wrapping_add(4),
            })
            .effect(Effect::AddRegister {
                to: PC,
                from: PC,
                by: rm,
                subtract: false,
                shift: 0,
                signed: true,
            })
            .flow(Flow::Indirect(Some(PC))),
        0b00 if rd == PC => builder.flow(Flow::Indirect(None)),
        0b00 if rm == PC => builder.effect(Effect::Add {
            to: rd,
            from: rd,
            by: (svma as u32).wrapping_add(4) as i32,
        }),
        0b00 => builder.effect(Effect::AddRegister {
            to: rd,
            from: rd,
            by: rm,
            subtract: false,
            shift: 0,
            signed: true,
        }),
        0b01 => builder,
        0b10 => match (rd, rm) {
            (PC, LR) => builder.flow(Flow::Return),
            (PC, _) => builder.flow(Flow::Indirect(Some(rm))),
            (_, PC) => builder.effect(Effect::Constant {
                to: rd,
                value: (svma as u32).wrapping_add(4),
            }),
            _ => builder.effect(Effect::Add {
                to: rd,
                from: rm,
                by: 0,
            }),
        },
        _ if h >> 7 & 1 == 1 => builder.flow(Flow::Call(None)),
        _ => builder.flow(if rm == LR {
            Flow::Return
        } else {
            Flow::Indirect(Some(rm))
        }),
    }
}

/// A6.2.5: 1011xxxx
fn miscellaneous(builder: InstructionBuilder<'_>, h: u32, svma: u64) -> InstructionBuilder<'_> {
    match h >> 8 & 0xf {
        0b0000 => {
            let by = (h & 0x7f) as i32 * 4;
            builder.effect(Effect::Add {
                to: SP,
                from: SP,
                by: if h >> 7 & 1 == 1 { -by } else { by },
            })
        }
        // cbz, cbnz
        0b0001 | 0b0011 | 0b1001 | 0b1011 => {
            let offset = (h >> 3 & 0x1f) << 1 | (h >> 9 & 1) << 6;
            builder.flow(Flow::IfZero {
                target: Target {
                    svma: target(svma, i64::from(offset)),
                    thumb: true,
                },
                nonzero: h >> 11 & 1 == 1,
            })
        }
        // hlt: 1011 1010 10.. ....
        0b1010 if h >> 6 & 3 == 0b10 => builder,
        0b0010 | 0b1010 => builder.clobber(1 << (h & 7)),
        0b0100 | 0b0101 => {
            let mask = h & 0xff | (h >> 8 & 1) << 14;
            block(builder, SP, mask, (true, false), true, false)
        }
        0b1100 | 0b1101 => {
            let mask = h & 0xff | (h >> 8 & 1) << 15;
            block(builder, SP, mask, (false, true), true, true)
        }
        // it, hints
        0b1111 if h & 0xf != 0 => {
            let instruction = builder;
            instruction.0.it = (h & 0xff) as u8;
            instruction
        }
        _ => builder,
    }
}
