//! Decodes x86-64 instructions to effects.
//!
//! Opcodes are from the Intel SDM, volume 2, appendix A. Every write to a general register must be
//! reported. The written value matters only for the few instructions that build frames or use jump
//! tables. [`form`] determines the length of an instruction.

mod escaped;
mod form;

use super::effect::{
    Effect, Entry, Flow, Instruction, InstructionBuilder, Limit, Table, TableForm, Target,
};
use form::{Form, Memory, Operand};

const RAX: u8 = 0;
const RDX: u8 = 1;
const RCX: u8 = 2;
const RSI: u8 = 4;
const RDI: u8 = 5;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// DWARF numbers by processor numbers (System V ABI, figure 3.36).
const NUMBERS: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Decodes the instruction at the start of `bytes`, at address `svma`. Returns whether there is
/// one; if not, `instruction` is undefined.
pub(crate) fn decode(bytes: &[u8], svma: u64, instruction: &mut Instruction) -> bool {
    let mut form = Form::NONE;
    if !form::read(bytes, &mut form) {
        return false;
    }
    *instruction = Instruction::new(form.len);
    // lea only computes an address; nop does not use its operands.
    let idle = form.map == 0 && form.opcode == 0x8d || form.map == 1 && form.opcode == 0x1f;
    if let Operand::Memory(memory) = form.operand
        && !idle
    {
        let bit = |register: u8| 1 << NUMBERS[usize::from(register & 15)];
        let index = memory.index.map_or(0, |(index, _)| bit(index));
        instruction.bases = memory.base.map_or(0, bit) | index;
    }
    let builder = InstructionBuilder(instruction);
    match form.map {
        0 => primary(&form, builder, svma),
        1 if form.vector => escaped::vector_secondary(&form, builder),
        1 => escaped::secondary(&form, builder, svma),
        2 => escaped::map_38(&form, builder),
        3 => escaped::map_3a(&form, builder),
        // bextr and similar, which write general registers (AMD64 manual, volume 3)
        9 if matches!(form.opcode, 1 | 2) => writes(builder, NUMBERS[usize::from(form.third & 15)]),
        10 if form.opcode == 0x10 => writes(builder, form.reg()),
        _ => builder,
    };
    true
}

/// Writes an unknown value to a register.
fn writes(builder: InstructionBuilder<'_>, register: u8) -> InstructionBuilder<'_> {
    builder.clobber(1 << register)
}

impl Form {
    /// The register in ModRM's reg field.
    fn reg(&self) -> u8 {
        NUMBERS[usize::from(self.reg & 15)]
    }

    /// The register with a number in a one-byte form: ah, ch, dh and bh without REX.
    fn byte(&self, number: u8) -> u8 {
        let high = !self.has_rex && (4..8).contains(&number);
        NUMBERS[usize::from(if high { number - 4 } else { number } & 15)]
    }

    /// The register in ModRM's r/m field, if it is one.
    fn rm(&self) -> Option<u8> {
        match self.operand {
            Operand::Register(number) => Some(NUMBERS[usize::from(number & 15)]),
            _ => None,
        }
    }

    /// The bit of the r/m register; 0 if it is memory.
    fn rm_mask(&self, byte: bool) -> u32 {
        match self.operand {
            Operand::Register(number) if byte => 1 << self.byte(number),
            Operand::Register(number) => 1 << NUMBERS[usize::from(number & 15)],
            _ => 0,
        }
    }

    /// Register and offset of a memory operand without an index.
    fn place(&self) -> Option<(u8, i32)> {
        match self.operand {
            Operand::Memory(Memory {
                base: Some(base),
                index: None,
                offset,
            }) if !self.segment => Some((NUMBERS[usize::from(base & 15)], offset)),
            _ => None,
        }
    }

    /// The target of a jump or call relative to the next instruction.
    fn target(&self, svma: u64) -> Target {
        Target {
            svma: next(self, svma).wrapping_add_signed(self.immediate),
            thumb: false,
        }
    }
}

/// Address of the next instruction.
fn next(form: &Form, svma: u64) -> u64 {
    svma.wrapping_add(u64::from(form.len))
}

fn add(to: u8, from: u8, by: i32) -> Effect {
    Effect::Add { to, from, by }
}

fn push(builder: InstructionBuilder<'_>) -> InstructionBuilder<'_> {
    builder.effect(add(RSP, RSP, -8))
}

/// A push or pop of two bytes, as prefix 66 makes it.
fn is_short(form: &Form) -> bool {
    form.half && !form.wide
}

fn constant(builder: InstructionBuilder<'_>, to: u8, value: i64) -> InstructionBuilder<'_> {
    let low = value as u32;
    if i64::from(low) == value || i64::from(low as i32) == value {
        builder.effect(Effect::Constant { to, value: low })
    } else {
        writes(builder, to)
    }
}

/// Copies `from` to `to`.
fn copy<'m>(
    form: &Form,
    builder: InstructionBuilder<'m>,
    to: u8,
    from: u8,
) -> InstructionBuilder<'m> {
    match form.wide {
        true => builder.effect(add(to, from, 0)),
        false if form.half => writes(builder, to),
        false => builder.effect(Effect::Half { to, from }),
    }
}

/// One-byte opcodes
fn primary<'m>(form: &Form, builder: InstructionBuilder<'m>, svma: u64) -> InstructionBuilder<'m> {
    let op = form.opcode;
    match op {
        0x00..=0x3f => arithmetic(form, builder),
        0x50..=0x57 | 0x68 | 0x6a | 0x9c if is_short(form) => builder.effect(add(RSP, RSP, -2)),
        0x9d if is_short(form) => builder.effect(add(RSP, RSP, 2)),
        0x58..=0x5f if is_short(form) => {
            let register = NUMBERS[usize::from(op & 7 | form.rex_b << 3)];
            let moved = builder.effect(add(RSP, RSP, 2));
            moved.clobber(1 << register)
        }
        0x50..=0x57 => {
            let register = NUMBERS[usize::from(op & 7 | form.rex_b << 3)];
            push(builder).effect(Effect::Store {
                base: RSP,
                // `push rsp` stores the old value
                offset: 0,
                mask: if register == RSP { 0 } else { 1 << register },
            })
        }
        0x58..=0x5f => {
            let register = NUMBERS[usize::from(op & 7 | form.rex_b << 3)];
            let load = Effect::Load {
                base: RSP,
                offset: 0,
                mask: 1 << register,
            };
            if register == RSP {
                builder.effect(load)
            } else {
                builder.effect(load).effect(add(RSP, RSP, 8))
            }
        }
        // movsxd
        0x63 => match form.operand {
            Operand::Memory(memory) if form.wide => indexed(form, builder, memory, 4, svma),
            _ => writes(builder, form.reg()),
        },
        0x68 | 0x6a | 0x9c => push(builder),
        0x69 | 0x6b => writes(builder, form.reg()),
        0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf => string(form, builder),
        0x70..=0x7f => builder.flow(conditional(op & 15, form.target(svma))),
        0x80 | 0x81 | 0x83 => immediate(form, builder),
        0x84 | 0x85 | 0x8e => builder,
        0x86 => builder.clobber(form.rm_mask(true) | 1 << form.byte(form.reg)),
        0x87 => match form.rm() {
            Some(one) if form.wide => builder.effect(Effect::Exchange {
                one,
                other: form.reg(),
            }),
            _ => builder.clobber(form.rm_mask(false) | 1 << form.reg()),
        },
        0x88 | 0xc0 | 0xd0 | 0xd2 | 0xc6 | 0xfe => builder.clobber(form.rm_mask(true)),
        0x89 => match (form.rm(), form.place()) {
            (Some(to), _) => copy(form, builder, to, form.reg()),
            (None, Some((base, offset))) if form.wide => builder.effect(Effect::Store {
                base,
                offset,
                mask: 1 << form.reg(),
            }),
            _ => builder,
        },
        0x8a => builder.clobber(1 << form.byte(form.reg)),
        0x8b => match (form.rm(), form.place(), form.operand) {
            (Some(from), ..) => copy(form, builder, form.reg(), from),
            (None, Some((base, offset)), _) if form.wide => builder.effect(Effect::Load {
                base,
                offset,
                mask: 1 << form.reg(),
            }),
            (_, _, Operand::Memory(memory)) if form.wide => indexed(form, builder, memory, 8, svma),
            _ => writes(builder, form.reg()),
        },
        0x8c | 0xc1 | 0xd1 | 0xd3 => builder.clobber(form.rm_mask(false)),
        0x8d => lea(form, builder, svma),
        0x8f => match form.rm() {
            Some(to) => builder
                .effect(Effect::Load {
                    base: RSP,
                    offset: 0,
                    mask: 1 << to,
                })
                .effect(add(RSP, RSP, 8)),
            None => builder.effect(add(RSP, RSP, 8)),
        },
        0x90 if form.rex_b == 0 => builder,
        0x90..=0x97 => {
            builder.clobber(1 << RAX | 1 << NUMBERS[usize::from(op & 7 | form.rex_b << 3)])
        }
        0x98 | 0x9f | 0xa0 | 0xa1 | 0xd7 | 0xe4 | 0xe5 | 0xec | 0xed => writes(builder, RAX),
        0x99 => writes(builder, RDX),
        0x9d => builder.effect(add(RSP, RSP, 8)),
        // ah, ch, dh, bh
        0xb4..=0xb7 if !form.has_rex => builder.clobber(1 << form.byte(op & 7)),
        0xb0..=0xb7 => builder.effect(Effect::Low {
            to: NUMBERS[usize::from(op & 7 | form.rex_b << 3)],
            value: form.immediate as u8,
        }),
        0xb8..=0xbf if is_short(form) => {
            writes(builder, NUMBERS[usize::from(op & 7 | form.rex_b << 3)])
        }
        0xb8..=0xbf => {
            let to = NUMBERS[usize::from(op & 7 | form.rex_b << 3)];
            let value = form.immediate;
            constant(
                builder,
                to,
                if form.wide {
                    value
                } else {
                    i64::from(value as u32)
                },
            )
        }
        0xc2 | 0xc3 | 0xca | 0xcb | 0xcf => builder.flow(Flow::Return),
        // xbegin
        0xc7 if form.modrm == 0xf8 => builder
            .clobber(1 << RAX)
            .flow(Flow::Branch(form.target(svma))),
        0xc7 => match form.rm() {
            Some(to) if form.wide => constant(builder, to, form.immediate),
            Some(to) if form.half => writes(builder, to),
            Some(to) => constant(builder, to, i64::from(form.immediate as u32)),
            None => builder,
        },
        0xc8 => builder
            .effect(add(RSP, RSP, -8 - (form.immediate & 0xffff) as i32))
            .effect(Effect::Store {
                base: RSP,
                offset: (form.immediate & 0xffff) as i32,
                mask: 1 << RBP,
            })
            .effect(add(RBP, RSP, (form.immediate & 0xffff) as i32)),
        0xc9 => builder
            .effect(add(RSP, RBP, 0))
            .effect(Effect::Load {
                base: RSP,
                offset: 0,
                mask: 1 << RBP,
            })
            .effect(add(RSP, RSP, 8)),
        0xcc | 0xf4 | 0xf1 => builder.flow(Flow::Trap),
        0xcd => writes(builder, RAX),
        // fnstsw ax
        0xdf if form.modrm == 0xe0 => writes(builder, RAX),
        // jrcxz
        0xe3 => builder.flow(Flow::Branch(form.target(svma))),
        0xe0..=0xe2 => builder
            .clobber(1 << RCX)
            .flow(Flow::Branch(form.target(svma))),
        0xe8 if form.immediate == 0 => push(builder),
        0xe8 => builder.flow(Flow::Call(Some(form.target(svma)))),
        0xe9 | 0xeb => builder.flow(Flow::Jump(form.target(svma))),
        0xf6 | 0xf7 => match form.reg & 7 {
            0 | 1 => builder,
            2 | 3 => builder.clobber(form.rm_mask(op == 0xf6)),
            // ax alone
            _ if op == 0xf6 => writes(builder, RAX),
            _ => builder.clobber(1 << RAX | 1 << RDX),
        },
        0xff => indirect(form, builder, svma),
        _ => builder,
    }
}

/// ins, outs, movs, cmps, stos, lods, scas
fn string<'m>(form: &Form, builder: InstructionBuilder<'m>) -> InstructionBuilder<'m> {
    let pointers = match form.opcode {
        0x6c | 0x6d | 0xaa | 0xab | 0xae | 0xaf => 1 << RDI,
        0x6e | 0x6f => 1 << RSI,
        0xac | 0xad => 1 << RSI | 1 << RAX,
        _ => 1 << RSI | 1 << RDI,
    };
    builder.clobber(pointers | u32::from(form.repeat) << RCX)
}

/// add, or, adc, sbb, and, sub, xor, cmp: by registers, and with an immediate in (r)ax
fn arithmetic<'m>(form: &Form, builder: InstructionBuilder<'m>) -> InstructionBuilder<'m> {
    let (operation, kind) = (form.opcode >> 3, form.opcode & 7);
    if operation == 7 {
        return if kind >= 4 {
            builder.limit(Limit::Compare(form.immediate as u32))
        } else {
            builder
        };
    }
    let (to, by) = match kind {
        0 => return builder.clobber(form.rm_mask(true)),
        2 => return builder.clobber(1 << form.byte(form.reg)),
        1 => match form.rm() {
            Some(to) => (to, Some(form.reg())),
            None => return builder,
        },
        3 => (form.reg(), form.rm()),
        4 => return writes(builder, RAX),
        _ => return register_immediate(form, builder, operation, RAX),
    };
    match (operation, by) {
        // xor same, same
        (6, Some(by)) if by == to && !form.half => {
            builder.effect(Effect::Constant { to, value: 0 })
        }
        (0 | 5, Some(by)) if form.wide => builder.effect(Effect::AddRegister {
            to,
            from: to,
            by,
            subtract: operation == 5,
            shift: 0,
            signed: true,
        }),
        (4, Some(_)) if form.wide => builder.effect(Effect::Align { to, from: to }),
        _ => writes(builder, to),
    }
}

/// Group 1: the same with an immediate
fn immediate<'m>(form: &Form, builder: InstructionBuilder<'m>) -> InstructionBuilder<'m> {
    let operation = form.reg & 7;
    if operation == 7 {
        return builder.limit(Limit::Compare(form.immediate as u32));
    }
    if form.opcode == 0x80 {
        return builder.clobber(form.rm_mask(true));
    }
    match form.rm() {
        Some(to) => register_immediate(form, builder, operation, to),
        None => builder,
    }
}

fn register_immediate<'m>(
    form: &Form,
    builder: InstructionBuilder<'m>,
    operation: u8,
    to: u8,
) -> InstructionBuilder<'m> {
    let value = form.immediate as i32;
    match operation {
        0 if form.wide => builder.effect(add(to, to, value)),
        5 if form.wide => builder.effect(add(to, to, value.wrapping_neg())),
        4 if form.wide && to == RSP => builder.effect(Effect::Align { to, from: to }),
        4 => writes(builder, to).limit(Limit::Mask(value as u32)),
        _ => writes(builder, to),
    }
}

fn lea<'m>(form: &Form, builder: InstructionBuilder<'m>, svma: u64) -> InstructionBuilder<'m> {
    let to = form.reg();
    if !form.wide {
        return writes(builder, to);
    }
    match form.operand {
        Operand::Memory(Memory {
            base: Some(base),
            index,
            offset,
        }) => {
            let base = NUMBERS[usize::from(base & 15)];
            let Some((index, shift)) = index else {
                return builder.effect(add(to, base, offset));
            };
            let sum = builder.effect(Effect::AddRegister {
                to,
                from: base,
                by: NUMBERS[usize::from(index & 15)],
                subtract: false,
                shift,
                signed: true,
            });
            if offset == 0 {
                sum
            } else {
                sum.effect(add(to, to, offset))
            }
        }
        Operand::Relative(offset) => {
            let svma = next(form, svma).wrapping_add_signed(i64::from(offset));
            constant(builder, to, svma as i64)
        }
        _ => writes(builder, to),
    }
}

/// A load of `size` bytes with an index, possibly from a jump table.
fn indexed<'m>(
    form: &Form,
    builder: InstructionBuilder<'m>,
    memory: Memory,
    size: u8,
    _svma: u64,
) -> InstructionBuilder<'m> {
    let to = form.reg();
    let entry = Entry { size, signed: true };
    let Some((_, shift)) = memory.index else {
        return writes(builder, to);
    };
    if 1 << shift != size || form.segment {
        return writes(builder, to);
    }
    match memory.base {
        Some(base) if memory.offset == 0 => builder.effect(Effect::Indexed {
            to,
            base: NUMBERS[usize::from(base & 15)],
            entry,
        }),
        None => builder
            .effect(Effect::Constant {
                to,
                value: memory.offset as u32,
            })
            .effect(Effect::Indexed {
                to,
                base: to,
                entry,
            }),
        _ => writes(builder, to),
    }
}

/// Group 5
fn indirect<'m>(form: &Form, builder: InstructionBuilder<'m>, svma: u64) -> InstructionBuilder<'m> {
    match form.reg & 7 {
        0 | 1 => builder.clobber(form.rm_mask(false)),
        2 | 3 => builder.flow(Flow::Call(None)),
        4 | 5 => {
            let flow = match form.operand {
                Operand::Register(number) => {
                    Flow::Indirect(Some(NUMBERS[usize::from(number & 15)]))
                }
                Operand::Memory(Memory {
                    base,
                    index: Some((_, 3)),
                    offset,
                }) if !form.segment && (base.is_none() || offset == 0) => Flow::Table(Table {
                    svma: base.is_none().then_some(u64::from(offset as u32)),
                    base: base.map_or(RSP, |base| NUMBERS[usize::from(base & 15)]),
                    form: TableForm::Addresses,
                }),
                Operand::Relative(offset) => Flow::Table(Table {
                    svma: Some(next(form, svma).wrapping_add_signed(i64::from(offset))),
                    base: RSP,
                    form: TableForm::Slot,
                }),
                _ => Flow::Indirect(None),
            };
            builder.flow(flow)
        }
        // The operand is read before rsp moves (SDM, "PUSH")
        6 => match form.place() {
            Some((from, offset)) => builder
                .effect(Effect::Copy {
                    from,
                    offset,
                    to: RSP,
                    at: -8,
                })
                .effect(add(RSP, RSP, -8)),
            None => push(builder),
        },
        _ => builder,
    }
}

fn conditional(condition: u8, target: Target) -> Flow {
    match condition {
        4 | 5 => Flow::IfZero {
            target,
            nonzero: condition == 5,
        },
        _ => Flow::Branch(target),
    }
}
