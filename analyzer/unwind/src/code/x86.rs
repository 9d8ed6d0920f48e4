//! x86-64 instructions to effects. Opcodes are from the Intel SDM, volume 2, appendix A. Every
//! instruction that writes a general register must say so; what it writes matters only for
//! the few that build frames or reach jump tables. [`form`] says how long an instruction is.

mod form;

use super::effect::{Effect, Entry, Flow, Instruction, Limit, Table, TableForm, Target};
use form::{Form, Memory, Operand};

const RAX: u8 = 0;
const RDX: u8 = 1;
const RCX: u8 = 2;
const RSI: u8 = 4;
const RDI: u8 = 5;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// DWARF's numbers by the processor's (System V ABI, figure 3.36).
const NUMBERS: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The instruction that `bytes` start with, at `svma`; `None`: there is none.
pub(crate) fn decode(bytes: &[u8], svma: u64) -> Option<Instruction> {
    let form = form::read(bytes)?;
    let mut instruction = match form.map {
        0 => primary(&form, svma),
        1 if form.vector => vector_secondary(&form),
        1 => secondary(&form, svma),
        2 => map_38(&form),
        3 => map_3a(&form),
        // bextr and its like, which write general registers (AMD64 manual, volume 3)
        9 if matches!(form.opcode, 1 | 2) => writes(&form, NUMBERS[usize::from(form.third & 15)]),
        10 if form.opcode == 0x10 => writes(&form, form.reg()),
        _ => new(&form),
    };
    // lea only computes; nop has operands that it does not use.
    let idle = form.map == 0 && form.opcode == 0x8d || form.map == 1 && form.opcode == 0x1f;
    if let Operand::Memory(memory) = form.operand
        && !idle
    {
        let registers = [memory.base, memory.index.map(|(index, _)| index)];
        for register in registers.into_iter().flatten() {
            instruction.bases |= 1 << NUMBERS[usize::from(register & 15)];
        }
    }
    Some(instruction)
}

fn new(form: &Form) -> Instruction {
    Instruction::new(form.len)
}

/// A register is written in a way that is not tracked.
fn writes(form: &Form, register: u8) -> Instruction {
    new(form).clobber(1 << register)
}

impl Form {
    /// The register of ModRM's reg field.
    fn reg(&self) -> u8 {
        NUMBERS[usize::from(self.reg & 15)]
    }

    /// The same where it is one byte wide: ah, ch, dh and bh without REX.
    fn byte(&self, number: u8) -> u8 {
        let high = !self.has_rex && (4..8).contains(&number);
        NUMBERS[usize::from(if high { number - 4 } else { number } & 15)]
    }

    /// The register of ModRM's r/m field, if it is one.
    fn rm(&self) -> Option<u8> {
        match self.operand {
            Operand::Register(number) => Some(NUMBERS[usize::from(number & 15)]),
            _ => None,
        }
    }

    /// Bit of the r/m register, none if it is memory.
    fn rm_mask(&self, byte: bool) -> u32 {
        match self.operand {
            Operand::Register(number) if byte => 1 << self.byte(number),
            Operand::Register(number) => 1 << NUMBERS[usize::from(number & 15)],
            _ => 0,
        }
    }

    /// Register and offset of a memory operand that has no index.
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

    /// Where a jump or call goes that is relative to the next instruction.
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

fn push(form: &Form) -> Instruction {
    new(form).effect(add(RSP, RSP, -8))
}

fn constant(form: &Form, to: u8, value: i64) -> Instruction {
    let low = value as u32;
    if i64::from(low) == value || i64::from(low as i32) == value {
        new(form).effect(Effect::Constant { to, value: low })
    } else {
        writes(form, to)
    }
}

/// A copy of 64 bits from `from` to `to`.
fn copy(form: &Form, to: u8, from: u8) -> Instruction {
    if form.wide {
        new(form).effect(add(to, from, 0))
    } else {
        writes(form, to)
    }
}

/// One-byte opcodes
fn primary(form: &Form, svma: u64) -> Instruction {
    let op = form.opcode;
    match op {
        0x00..=0x3f => arithmetic(form),
        0x50..=0x57 => {
            let register = NUMBERS[usize::from(op & 7 | form.rex_b << 3)];
            push(form).effect(Effect::Store {
                base: RSP,
                // `push rsp` stores what it was
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
                new(form).effect(load)
            } else {
                new(form).effect(load).effect(add(RSP, RSP, 8))
            }
        }
        // movsxd
        0x63 => match form.operand {
            Operand::Memory(memory) if form.wide => indexed(form, memory, 4, svma),
            _ => writes(form, form.reg()),
        },
        0x68 | 0x6a | 0x9c => push(form),
        0x69 | 0x6b => writes(form, form.reg()),
        0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf => {
            let load = if matches!(op, 0xac | 0xad) {
                1 << RAX
            } else {
                0
            };
            new(form).clobber(1 << RSI | 1 << RDI | 1 << RCX | load)
        }
        0x70..=0x7f => new(form).flow(conditional(op & 15, form.target(svma))),
        0x80 | 0x81 | 0x83 => immediate(form),
        0x84 | 0x85 | 0x8e => new(form),
        0x86 => new(form).clobber(form.rm_mask(true) | 1 << form.byte(form.reg)),
        0x87 => match form.rm() {
            Some(one) if form.wide => new(form).effect(Effect::Exchange {
                one,
                other: form.reg(),
            }),
            _ => new(form).clobber(form.rm_mask(false) | 1 << form.reg()),
        },
        0x88 | 0xc0 | 0xd0 | 0xd2 | 0xc6 | 0xfe => new(form).clobber(form.rm_mask(true)),
        0x89 => match (form.rm(), form.place()) {
            (Some(to), _) => copy(form, to, form.reg()),
            (None, Some((base, offset))) if form.wide => new(form).effect(Effect::Store {
                base,
                offset,
                mask: 1 << form.reg(),
            }),
            _ => new(form),
        },
        0x8a => new(form).clobber(1 << form.byte(form.reg)),
        0x8b => match (form.rm(), form.place(), form.operand) {
            (Some(from), ..) => copy(form, form.reg(), from),
            (None, Some((base, offset)), _) if form.wide => new(form).effect(Effect::Load {
                base,
                offset,
                mask: 1 << form.reg(),
            }),
            (_, _, Operand::Memory(memory)) if form.wide => indexed(form, memory, 8, svma),
            _ => writes(form, form.reg()),
        },
        0x8c | 0xc1 | 0xd1 | 0xd3 => new(form).clobber(form.rm_mask(false)),
        0x8d => lea(form, svma),
        0x8f => match form.rm() {
            Some(to) => new(form)
                .effect(Effect::Load {
                    base: RSP,
                    offset: 0,
                    mask: 1 << to,
                })
                .effect(add(RSP, RSP, 8)),
            None => new(form).effect(add(RSP, RSP, 8)),
        },
        0x90 if form.rex_b == 0 => new(form),
        0x90..=0x97 => {
            new(form).clobber(1 << RAX | 1 << NUMBERS[usize::from(op & 7 | form.rex_b << 3)])
        }
        0x98 | 0x9f | 0xa0 | 0xa1 | 0xd7 | 0xe4 | 0xe5 | 0xec | 0xed => writes(form, RAX),
        0x99 => writes(form, RDX),
        0x9d => new(form).effect(add(RSP, RSP, 8)),
        // ah, ch, dh, bh
        0xb4..=0xb7 if !form.has_rex => new(form).clobber(1 << form.byte(op & 7)),
        0xb0..=0xb7 => new(form).effect(Effect::Low {
            to: NUMBERS[usize::from(op & 7 | form.rex_b << 3)],
            value: form.immediate as u8,
        }),
        0xb8..=0xbf => {
            let to = NUMBERS[usize::from(op & 7 | form.rex_b << 3)];
            let value = form.immediate;
            constant(
                form,
                to,
                if form.wide {
                    value
                } else {
                    i64::from(value as u32)
                },
            )
        }
        0xc2 | 0xc3 | 0xca | 0xcb | 0xcf => new(form).flow(Flow::Return),
        // xbegin
        0xc7 if form.modrm == 0xf8 => new(form)
            .clobber(1 << RAX)
            .flow(Flow::Branch(form.target(svma))),
        0xc7 => match form.rm() {
            Some(to) if form.wide => constant(form, to, form.immediate),
            Some(to) => constant(form, to, i64::from(form.immediate as u32)),
            None => new(form),
        },
        0xc8 => new(form)
            .effect(add(RSP, RSP, -8 - (form.immediate & 0xffff) as i32))
            .effect(Effect::Store {
                base: RSP,
                offset: (form.immediate & 0xffff) as i32,
                mask: 1 << RBP,
            })
            .effect(add(RBP, RSP, (form.immediate & 0xffff) as i32)),
        0xc9 => new(form)
            .effect(add(RSP, RBP, 0))
            .effect(Effect::Load {
                base: RSP,
                offset: 0,
                mask: 1 << RBP,
            })
            .effect(add(RSP, RSP, 8)),
        0xcc | 0xf4 | 0xf1 => new(form).flow(Flow::Trap),
        0xcd => writes(form, RAX),
        // fnstsw ax
        0xdf if form.modrm == 0xe0 => writes(form, RAX),
        0xe0..=0xe3 => new(form)
            .clobber(1 << RCX)
            .flow(Flow::Branch(form.target(svma))),
        0xe8 if form.immediate == 0 => push(form),
        0xe8 => new(form).flow(Flow::Call(Some(form.target(svma)))),
        0xe9 | 0xeb => new(form).flow(Flow::Jump(form.target(svma))),
        0xf6 | 0xf7 => match form.reg & 7 {
            0 | 1 => new(form),
            2 | 3 => new(form).clobber(form.rm_mask(op == 0xf6)),
            _ => new(form).clobber(1 << RAX | 1 << RDX),
        },
        0xff => indirect(form, svma),
        _ => new(form),
    }
}

/// add, or, adc, sbb, and, sub, xor, cmp: by registers, and with an immediate in (r)ax
fn arithmetic(form: &Form) -> Instruction {
    let (operation, kind) = (form.opcode >> 3, form.opcode & 7);
    if operation == 7 {
        return if kind >= 4 {
            new(form).limit(Limit::Compare(form.immediate as u32))
        } else {
            new(form)
        };
    }
    let (to, by) = match kind {
        0 => return new(form).clobber(form.rm_mask(true)),
        2 => return new(form).clobber(1 << form.byte(form.reg)),
        1 => match form.rm() {
            Some(to) => (to, Some(form.reg())),
            None => return new(form),
        },
        3 => (form.reg(), form.rm()),
        4 => return writes(form, RAX),
        _ => return register_immediate(form, operation, RAX),
    };
    match (operation, by) {
        // xor same, same
        (6, Some(by)) if by == to && !form.half => {
            new(form).effect(Effect::Constant { to, value: 0 })
        }
        (0 | 5, Some(by)) if form.wide => new(form).effect(Effect::AddRegister {
            to,
            from: to,
            by,
            subtract: operation == 5,
            shift: 0,
            signed: true,
        }),
        (4, Some(_)) if form.wide => new(form).effect(Effect::Align { to, from: to }),
        _ => writes(form, to),
    }
}

/// Group 1: the same with an immediate
fn immediate(form: &Form) -> Instruction {
    let operation = form.reg & 7;
    if operation == 7 {
        return new(form).limit(Limit::Compare(form.immediate as u32));
    }
    if form.opcode == 0x80 {
        return new(form).clobber(form.rm_mask(true));
    }
    match form.rm() {
        Some(to) => register_immediate(form, operation, to),
        None => new(form),
    }
}

fn register_immediate(form: &Form, operation: u8, to: u8) -> Instruction {
    let value = form.immediate as i32;
    match operation {
        0 if form.wide => new(form).effect(add(to, to, value)),
        5 if form.wide => new(form).effect(add(to, to, value.wrapping_neg())),
        4 if form.wide && to == RSP => new(form).effect(Effect::Align { to, from: to }),
        4 => writes(form, to).limit(Limit::Mask(value as u32)),
        _ => writes(form, to),
    }
}

fn lea(form: &Form, svma: u64) -> Instruction {
    let to = form.reg();
    if !form.wide {
        return writes(form, to);
    }
    match form.operand {
        Operand::Memory(Memory {
            base: Some(base),
            index,
            offset,
        }) => {
            let base = NUMBERS[usize::from(base & 15)];
            let Some((index, shift)) = index else {
                return new(form).effect(add(to, base, offset));
            };
            let sum = new(form).effect(Effect::AddRegister {
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
            constant(form, to, svma as i64)
        }
        _ => writes(form, to),
    }
}

/// A load of `size` bytes by an index: maybe an entry of a jump table.
fn indexed(form: &Form, memory: Memory, size: u8, _svma: u64) -> Instruction {
    let to = form.reg();
    let entry = Entry { size, signed: true };
    let Some((_, shift)) = memory.index else {
        return writes(form, to);
    };
    if 1 << shift != size || form.segment {
        return writes(form, to);
    }
    match memory.base {
        Some(base) if memory.offset == 0 => new(form).effect(Effect::Indexed {
            to,
            base: NUMBERS[usize::from(base & 15)],
            entry,
        }),
        None => new(form)
            .effect(Effect::Constant {
                to,
                value: memory.offset as u32,
            })
            .effect(Effect::Indexed {
                to,
                base: to,
                entry,
            }),
        _ => writes(form, to),
    }
}

/// Group 5
fn indirect(form: &Form, svma: u64) -> Instruction {
    match form.reg & 7 {
        0 | 1 => new(form).clobber(form.rm_mask(false)),
        2 | 3 => new(form).flow(Flow::Call(None)),
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
            new(form).flow(flow)
        }
        // Before rsp moves (SDM, "PUSH")
        6 => match form.place() {
            Some((from, offset)) => new(form)
                .effect(Effect::Copy {
                    from,
                    offset,
                    to: RSP,
                    at: -8,
                })
                .effect(add(RSP, RSP, -8)),
            None => push(form),
        },
        _ => new(form),
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

/// Opcodes 0f xx
fn secondary(form: &Form, svma: u64) -> Instruction {
    match form.opcode {
        0x05 => new(form)
            .clobber(1 << RCX | 1 << 11)
            .effect(Effect::SystemCall),
        0x0b | 0xb9 | 0xff => new(form).flow(Flow::Trap),
        // xgetbv, rdtscp and their like
        0x01 if form.modrm >= 0xc0 => new(form).clobber(1 << RAX | 1 << RDX | 1 << RCX),
        0x30..=0x37 => new(form).clobber(1 << RAX | 1 << RDX),
        // movzx of a table's entry
        0xb6 | 0xb7 if matches!(form.operand, Operand::Memory(Memory { index: Some(_), .. })) => {
            writes(form, form.reg()).limit(Limit::Loaded)
        }
        0x02 | 0x03 | 0x40..=0x4f | 0x50 | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf | 0xc5 | 0xd7 => {
            writes(form, form.reg())
        }
        0x20 | 0x21 => new(form).clobber(form.rm_mask(false)),
        // cvt..2si
        0x2c | 0x2d if form.repeat => writes(form, form.reg()),
        // movd, movq to a general register
        0x7e if form.half => new(form).clobber(form.rm_mask(false)),
        0x80..=0x8f => new(form).flow(conditional(form.opcode & 15, form.target(svma))),
        0x90..=0x9f => new(form).clobber(form.rm_mask(true)),
        0xa0 | 0xa8 => push(form),
        0xa1 | 0xa9 => new(form).effect(add(RSP, RSP, 8)),
        // cpuid
        0xa2 => new(form).clobber(1 << RAX | 1 << RDX | 1 << RCX | 1 << 3),
        0xa4 | 0xa5 | 0xac | 0xad | 0xab | 0xb3 | 0xbb => new(form).clobber(form.rm_mask(false)),
        0xba if form.reg & 7 >= 5 => new(form).clobber(form.rm_mask(false)),
        0xb0 | 0xb1 => new(form).clobber(form.rm_mask(form.opcode == 0xb0) | 1 << RAX),
        0xc0 => new(form).clobber(form.rm_mask(true) | 1 << form.byte(form.reg)),
        0xc1 => new(form).clobber(form.rm_mask(false) | 1 << form.reg()),
        // cmpxchg8b, cmpxchg16b; rdrand, rdseed, rdpid
        0xc7 => new(form).clobber(form.rm_mask(false) | 1 << RAX | 1 << RDX),
        0xc8..=0xcf => writes(
            form,
            NUMBERS[usize::from(form.opcode & 7 | form.rex_b << 3)],
        ),
        // rdfsbase and its like; rdssp
        0xae | 0x1e if form.repeat => new(form).clobber(form.rm_mask(false)),
        _ => new(form),
    }
}

/// VEX and EVEX opcodes of map 0f
fn vector_secondary(form: &Form) -> Instruction {
    match form.opcode {
        0x2c | 0x2d if form.repeat => writes(form, form.reg()),
        0x50 | 0xc5 | 0xd7 => writes(form, form.reg()),
        // kmov to a general register
        0x93 => writes(form, form.reg()),
        0x7e if form.half => new(form).clobber(form.rm_mask(false)),
        0x78 | 0x79 if form.evex && form.repeat => writes(form, form.reg()),
        _ => new(form),
    }
}

/// Opcodes 0f 38 xx
fn map_38(form: &Form) -> Instruction {
    let third = 1u32 << NUMBERS[usize::from(form.third & 15)];
    match form.opcode {
        _ if form.evex => new(form),
        // movbe, crc32, adcx, adox
        0xf0 | 0xf1 | 0xf6 if !form.vector => writes(form, form.reg()),
        // andn, bzhi, pext, pdep, bextr, shlx, ...
        0xf2 | 0xf5 | 0xf7 if form.vector => writes(form, form.reg()),
        // blsr, blsmsk, blsi
        0xf3 if form.vector => new(form).clobber(third),
        // mulx
        0xf6 => writes(form, form.reg()).clobber(third),
        _ => new(form),
    }
}

/// Opcodes 0f 3a xx
fn map_3a(form: &Form) -> Instruction {
    match form.opcode {
        // pextrb, pextrw, pextrd, extractps
        0x14..=0x17 => new(form).clobber(form.rm_mask(false)),
        // rorx
        0xf0 if form.vector => writes(form, form.reg()),
        _ => new(form),
    }
}
