//! The effects of instructions whose opcodes begin with the escape byte 0f. Apart from those with
//! one byte, because they are maps of their own (Intel SDM, volume 2, appendix A.2.4).

use super::form::{Form, Memory, Operand};
use super::{NUMBERS, RAX, RCX, RDI, RDX, RSI, RSP, add, conditional, push, writes};
use crate::code::effect::{Effect, Flow, InstructionBuilder, Limit};

/// Opcodes 0f xx
pub(super) fn secondary<'m>(
    form: &Form,
    builder: InstructionBuilder<'m>,
    svma: u64,
) -> InstructionBuilder<'m> {
    match form.opcode {
        0x05 => builder
            .clobber(1 << RCX | 1 << 11)
            .effect(Effect::SystemCall),
        0x0b | 0xb9 | 0xff => builder.flow(Flow::Trap),
        // sldt, str; smsw
        0x00 if form.reg & 7 <= 1 => builder.clobber(form.rm_mask(false)),
        0x01 if form.modrm >= 0xc0 && form.reg & 7 == 4 => builder.clobber(form.rm_mask(false)),
        // xend, xtest, wrpkru
        0x01 if matches!(form.modrm, 0xd5 | 0xd6 | 0xef) => builder,
        // xgetbv, rdtscp and similar
        0x01 if form.modrm >= 0xc0 => builder.clobber(1 << RAX | 1 << RDX | 1 << RCX),
        // rdtsc, rdmsr, rdpmc
        0x31..=0x37 => builder.clobber(1 << RAX | 1 << RDX),
        // movzx of a table's entry
        0xb6 | 0xb7 if matches!(form.operand, Operand::Memory(Memory { index: Some(_), .. })) => {
            writes(builder, form.reg()).limit(Limit::Loaded)
        }
        // lss, lfs, lgs
        0xb2 | 0xb4 | 0xb5 => writes(builder, form.reg()),
        // vmread
        0x78 => builder.clobber(form.rm_mask(false)),
        // VIA's xstore, xcrypt, xsha
        0xa6 | 0xa7 => builder.clobber(1 << RAX | 1 << RCX | 1 << RSI | 1 << RDI),
        0x02 | 0x03 | 0x40..=0x4f | 0x50 | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf | 0xc5 | 0xd7 => {
            writes(builder, form.reg())
        }
        0x20 | 0x21 => builder.clobber(form.rm_mask(false)),
        // cvt..2si
        0x2c | 0x2d if form.repeat => writes(builder, form.reg()),
        // movd, movq to a general register
        0x7e if form.half => builder.clobber(form.rm_mask(false)),
        0x80..=0x8f => builder.flow(conditional(form.opcode & 15, form.target(svma))),
        0x90..=0x9f => builder.clobber(form.rm_mask(true)),
        0xa0 | 0xa8 => push(builder),
        0xa1 | 0xa9 => builder.effect(add(RSP, RSP, 8)),
        // cpuid
        0xa2 => builder.clobber(1 << RAX | 1 << RDX | 1 << RCX | 1 << 3),
        0xa4 | 0xa5 | 0xac | 0xad | 0xab | 0xb3 | 0xbb => builder.clobber(form.rm_mask(false)),
        0xba if form.reg & 7 >= 5 => builder.clobber(form.rm_mask(false)),
        0xb0 | 0xb1 => builder.clobber(form.rm_mask(form.opcode == 0xb0) | 1 << RAX),
        0xc0 => builder.clobber(form.rm_mask(true) | 1 << form.byte(form.reg)),
        0xc1 => builder.clobber(form.rm_mask(false) | 1 << form.reg()),
        // cmpxchg8b, cmpxchg16b; rdrand, rdseed, rdpid
        0xc7 if form.rm().is_some() => builder.clobber(form.rm_mask(false)),
        0xc7 => builder.clobber(1 << RAX | 1 << RDX),
        0xc8..=0xcf => writes(
            builder,
            NUMBERS[usize::from(form.opcode & 7 | form.rex_b << 3)],
        ),
        // rdfsbase, rdgsbase
        0xae if form.repeat && form.reg & 7 <= 1 => builder.clobber(form.rm_mask(false)),
        // rdssp; endbr64 has another reg field
        0x1e if form.repeat && form.reg & 7 == 1 => builder.clobber(form.rm_mask(false)),
        _ => builder,
    }
}

/// VEX and EVEX opcodes of map 0f
pub(super) fn vector_secondary<'m>(
    form: &Form,
    builder: InstructionBuilder<'m>,
) -> InstructionBuilder<'m> {
    match form.opcode {
        0x2c | 0x2d if form.repeat => writes(builder, form.reg()),
        0x50 | 0xc5 | 0xd7 => writes(builder, form.reg()),
        // kmov to a general register
        0x93 => writes(builder, form.reg()),
        0x7e if form.half => builder.clobber(form.rm_mask(false)),
        0x78 | 0x79 if form.evex && form.repeat => writes(builder, form.reg()),
        _ => builder,
    }
}

/// Opcodes 0f 38 xx
pub(super) fn map_38<'m>(form: &Form, builder: InstructionBuilder<'m>) -> InstructionBuilder<'m> {
    let third = 1u32 << NUMBERS[usize::from(form.third & 15)];
    match form.opcode {
        _ if form.evex => builder,
        // movbe to memory
        0xf1 if !form.vector && !form.repeat => builder,
        // movbe, crc32, adcx, adox
        0xf0 | 0xf1 | 0xf6 if !form.vector => writes(builder, form.reg()),
        // andn, bzhi, pext, pdep, bextr, shlx, ...
        0xf2 | 0xf5 | 0xf7 if form.vector => writes(builder, form.reg()),
        // blsr, blsmsk, blsi
        0xf3 if form.vector => builder.clobber(third),
        // mulx
        0xf6 => writes(builder, form.reg()).clobber(third),
        _ => builder,
    }
}

/// Opcodes 0f 3a xx
pub(super) fn map_3a<'m>(form: &Form, builder: InstructionBuilder<'m>) -> InstructionBuilder<'m> {
    match form.opcode {
        // pextrb, pextrw, pextrd, extractps
        0x14..=0x17 => builder.clobber(form.rm_mask(false)),
        // pcmpestri, pcmpistri
        0x61 | 0x63 if !form.evex => writes(builder, RCX),
        // rorx
        0xf0 if form.vector => writes(builder, form.reg()),
        _ => builder,
    }
}
