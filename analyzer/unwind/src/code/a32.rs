//! Decodes A32 instructions to effects.
//!
//! Bit patterns are from the Arm Architecture Reference Manual, Armv7-A (ARM ARM), chapter A5.
//! Every write to a core register must be reported. The written value matters only for the few
//! instructions that build frames.

mod memory;

use super::effect::{Effect, Entry, Flow, InstructionBuilder, Limit, Table, TableForm, Target};

pub(super) use memory::{Address, block, coprocessor_transfer, data};
use memory::{block_transfer, element_writeback, extra_load_store, load_store};

const SP: u8 = 13;
const LR: u8 = 14;
const PC: u8 = 15;
/// An entry of an offset table.
pub(super) const WORD: Entry = Entry {
    size: 4,
    signed: true,
};

/// Decodes the instruction `w` at `svma`.
pub(crate) fn decode(builder: InstructionBuilder<'_>, w: u32, svma: u64) -> InstructionBuilder<'_> {
    let instruction = match w >> 28 {
        0xf => unconditional(builder, w, svma),
        _ => conditional(builder, w, svma),
    };
    instruction.0.condition = match w >> 28 {
        0xf => 14,
        condition => condition as u8,
    };
    instruction
}

fn field(w: u32, low: u32) -> u8 {
    (w >> low & 0xf) as u8
}

fn bit(w: u32, n: u32) -> bool {
    w >> n & 1 == 1
}

/// ARM ARM A5.2.4: an 8-bit value rotated right by twice a 4-bit count.
fn immediate(w: u32) -> u32 {
    (w & 0xff).rotate_right(2 * (w >> 8 & 0xf))
}

/// A write to `mask`; a write to pc is a jump.
fn writes(builder: InstructionBuilder<'_>, mask: u32) -> InstructionBuilder<'_> {
    let instruction = builder.clobber(mask & 0x7fff);
    if mask >> 15 & 1 == 1 {
        instruction.flow(Flow::Indirect(None))
    } else {
        instruction
    }
}

fn unconditional(builder: InstructionBuilder<'_>, w: u32, svma: u64) -> InstructionBuilder<'_> {
    // A5.7
    if w >> 25 & 7 == 0b101 {
        // blx label: 1111 101H imm24
        let offset = (((w & 0x00ff_ffff) << 8) as i32 >> 6) | (w >> 23 & 2) as i32;
        return builder.flow(Flow::Call(Some(Target {
            svma: svma.wrapping_add(8).wrapping_add_signed(i64::from(offset)) & 0xffff_ffff,
            thumb: true,
        })));
    }
    // NEON element and structure loads: 1111 0100 .. Rn .. Rm
    if w >> 24 & 0xf == 0b0100 && !bit(w, 20) {
        return element_writeback(builder, w);
    }
    if w >> 25 & 7 == 0b110 {
        return coprocessor_transfer(builder, w, svma.wrapping_add(8));
    }
    builder
}

fn conditional(builder: InstructionBuilder<'_>, w: u32, svma: u64) -> InstructionBuilder<'_> {
    match w >> 25 & 7 {
        0b000 => data_register(builder, w, svma),
        0b001 => data_immediate(builder, w, svma),
        0b010 => load_store(builder, w, svma),
        0b011 if bit(w, 4) => media(builder, w),
        0b011 => load_store(builder, w, svma),
        0b100 => block_transfer(builder, w),
        0b101 => {
            let offset = ((w & 0x00ff_ffff) << 8) as i32 >> 6;
            let target = Target {
                svma: svma.wrapping_add(8).wrapping_add_signed(i64::from(offset)) & 0xffff_ffff,
                thumb: false,
            };
            builder.flow(if bit(w, 24) {
                Flow::Call(Some(target))
            } else {
                Flow::Jump(target)
            })
        }
        0b110 => coprocessor_transfer(builder, w, svma.wrapping_add(8)),
        _ if bit(w, 24) => builder.effect(Effect::SystemCall),
        // mrc: 1110 ...1 CRn Rt ...1; Rt = 15 sets the flags
        _ if bit(w, 4) && bit(w, 20) && field(w, 12) != 15 => writes(builder, 1 << field(w, 12)),
        _ => builder,
    }
}

fn data_register(builder: InstructionBuilder<'_>, w: u32, svma: u64) -> InstructionBuilder<'_> {
    if bit(w, 7) && bit(w, 4) {
        return if w >> 5 & 3 == 0 {
            multiply_or_exclusive(builder, w)
        } else {
            extra_load_store(builder, w, svma)
        };
    }
    if w >> 23 & 3 == 0b10 && !bit(w, 20) {
        return miscellaneous(builder, w);
    }
    let (opcode, rn, rd) = (w >> 21 & 0xf, field(w, 16), field(w, 12));
    let rm = field(w, 0);
    let plain = w & 0xff0 == 0;
    match opcode {
        // tst, teq, cmp, cmn
        0b1000..=0b1011 => builder,
        // mov
        0b1101 if plain => move_register(builder, rd, rm, svma),
        // add pc, pc, rm, lsl #n
        0b0100 if rd == PC && rn == PC && w & 0x70 == 0 => builder.flow(Flow::Table(Table {
            svma: Some(svma + 8),
            base: PC,
            form: TableForm::Instructions((w >> 7 & 0x1f) as u8),
        })),
        // add pc, rn, rm: a table of distances
        0b0100 if plain && rd == PC && rn != PC && rm != PC => sum_to_pc(builder, rn, rm),
        0b0100 if w & 0x70 == 0 && rd != PC && rn != PC && rm != PC && !plain => {
            builder.effect(Effect::AddRegister {
                to: rd,
                from: rn,
                by: rm,
                subtract: false,
                shift: (w >> 7 & 0x1f) as u8,
                signed: true,
            })
        }
        0b0100 | 0b0010 if plain && rd != PC => {
            if opcode == 0b0100 && (rn == PC || rm == PC) {
                return builder.effect(Effect::Add {
                    to: rd,
                    from: if rn == PC { rm } else { rn },
                    by: (svma as u32).wrapping_add(8) as i32,
                });
            }
            if rn == PC || rm == PC {
                return writes(builder, 1 << rd);
            }
            builder.effect(Effect::AddRegister {
                to: rd,
                from: rn,
                by: rm,
                subtract: opcode == 0b0010,
                shift: 0,
                signed: true,
            })
        }
        _ => writes(builder, 1 << rd),
    }
}

/// `pc = from + by`. Only the jump uses the sum, because pc is not tracked.
pub(super) fn sum_to_pc(
    builder: InstructionBuilder<'_>,
    from: u8,
    by: u8,
) -> InstructionBuilder<'_> {
    let sum = Effect::AddRegister {
        to: PC,
        from,
        by,
        subtract: false,
        shift: 0,
        signed: true,
    };
    builder.effect(sum).flow(Flow::Indirect(Some(PC)))
}

fn move_register(
    builder: InstructionBuilder<'_>,
    rd: u8,
    rm: u8,
    svma: u64,
) -> InstructionBuilder<'_> {
    match (rd, rm) {
        (PC, LR) => builder.flow(Flow::Return),
        (PC, _) => builder.flow(Flow::Indirect(Some(rm))),
        (_, PC) => builder.effect(Effect::Constant {
            to: rd,
            value: (svma + 8) as u32,
        }),
        _ => builder.effect(Effect::Add {
            to: rd,
            from: rm,
            by: 0,
        }),
    }
}

/// A5.2.12
fn miscellaneous(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    let (op, op2) = (w >> 21 & 3, w >> 4 & 7);
    if bit(w, 7) {
        // halfword multiplies, 1yx0: Rd at 16; smlal at 12 and 16
        return writes(
            builder,
            1 << field(w, 16) | u32::from(op == 2) << field(w, 12),
        );
    }
    match (op2, op) {
        (0, 0 | 2) => writes(builder, 1 << field(w, 12)), // mrs
        (1, 1) | (2, 1) => {
            // bx, bxj
            builder.flow(if w & 0xf == u32::from(LR) {
                Flow::Return
            } else {
                Flow::Indirect(Some((w & 0xf) as u8))
            })
        }
        (1, 3) | (5, _) => writes(builder, 1 << field(w, 12)), // clz, saturating add
        (3, 1) => builder.flow(Flow::Call(None)),              // blx register
        (7, 1) => builder,                                     // bkpt
        _ => builder,
    }
}

/// A5.2.5, A5.2.10
fn multiply_or_exclusive(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    if bit(w, 24) {
        // swp, ldrex, strex: Rd at 12; ldrexd also the one after
        return writes(
            builder,
            (1 << field(w, 12) | u32::from(w >> 20 & 0xf == 0xb) << (field(w, 12) + 1)) & 0x7fff,
        );
    }
    let high = 1 << field(w, 16);
    if bit(w, 23) || w >> 21 & 7 == 0b010 {
        writes(builder, high | 1 << field(w, 12))
    } else {
        writes(builder, high)
    }
}

fn data_immediate<'m>(
    builder: InstructionBuilder<'m>,
    w: u32,
    svma: u64,
) -> InstructionBuilder<'m> {
    let (rn, rd) = (field(w, 16), field(w, 12));
    let half = w >> 4 & 0xf000 | w & 0xfff;
    match w >> 20 & 0x1f {
        // movw, movt
        0b10000 => {
            return builder.effect(Effect::Constant {
                to: rd,
                value: half,
            });
        }
        0b10100 => {
            return builder.effect(Effect::High {
                to: rd,
                value: half as u16,
            });
        }
        // msr, hints
        0b10010 | 0b10110 => return builder,
        _ => {}
    }
    let value = immediate(w);
    let sum = |builder: InstructionBuilder<'m>, value: u32| {
        if rd == PC {
            return writes(builder, 1 << rd);
        }
        if rn == PC {
            return builder.effect(Effect::Constant {
                to: rd,
                value: (svma as u32).wrapping_add(8).wrapping_add(value),
            });
        }
        builder.effect(Effect::Add {
            to: rd,
            from: rn,
            by: value as i32,
        })
    };
    match w >> 21 & 0xf {
        0b0100 => sum(builder, value),
        0b0010 => sum(builder, value.wrapping_neg()),
        0b1010 => builder.limit(Limit::Compare(value)),
        0b1000..=0b1011 => builder,
        0b1101 if rd != PC => builder.effect(Effect::Constant { to: rd, value }),
        // orr rd, rn, #1: T32
        0b1100 if value == 1 && rd != PC => builder.effect(Effect::Add {
            to: rd,
            from: rn,
            by: 0,
        }),
        0b1111 if rd != PC => builder.effect(Effect::Constant {
            to: rd,
            value: !value,
        }),
        _ => writes(builder, 1 << rd),
    }
}

/// A5.4
fn media(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    let op = w >> 20 & 0x1f;
    if op == 0x1f && w >> 5 & 7 == 7 {
        return builder.flow(Flow::Trap);
    }
    let rd = match op {
        // signed multiplies and divides, usad8: Rd at 16; smlald also 12
        0x10..=0x18 => 1 << field(w, 16) | u32::from(op == 0x14) << field(w, 12),
        _ => 1 << field(w, 12),
    };
    writes(builder, rd & 0x7fff)
}
