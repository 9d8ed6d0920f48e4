//! The form of an x86-64 instruction: prefixes, opcode, operands and length (Intel SDM, volume 2, chapter 2 and
//! appendix A). Apart from what instructions do, because everything depends on lengths being right.

/// No instruction is longer.
const LONGEST: usize = 15;

/// A memory operand: `base + index << shift + offset`. Registers have the processor's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) base: Option<u8>,
    pub(super) index: Option<(u8, u8)>,
    pub(super) offset: i32,
}

/// ModRM's r/m operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// There is no ModRM byte.
    None,
    Register(u8),
    Memory(Memory),
    /// Relative to the next instruction.
    Relative(i32),
}

/// One instruction, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// In bytes.
    pub(crate) len: u8,
    /// 0: one-byte opcodes; 1: 0f; 2: 0f 38; 3: 0f 3a; more: EVEX's.
    pub(super) map: u8,
    pub(super) opcode: u8,
    pub(super) modrm: u8,
    /// ModRM's reg with its REX bit.
    pub(super) reg: u8,
    /// VEX's third register.
    pub(super) third: u8,
    pub(super) operand: Operand,
    /// Sign-extended.
    pub(super) immediate: i64,
    /// 64-bit operands.
    pub(super) wide: bool,
    /// Prefix 66.
    pub(super) half: bool,
    /// Prefix f2 or f3.
    pub(super) repeat: bool,
    /// Prefix 64 or 65.
    pub(super) segment: bool,
    pub(super) has_rex: bool,
    pub(super) rex_b: u8,
    /// VEX or EVEX.
    pub(super) vector: bool,
    pub(super) evex: bool,
}

/// What follows an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// No such instruction in 64-bit mode.
    Invalid,
    Plain,
    ModRm,
    /// Immediate bytes, without and with ModRM.
    Imm8,
    ModRmImm8,
    /// 16 or 32 bits, by operand size.
    ImmZ,
    ModRmImmZ,
    Imm16,
    /// `enter`
    Imm16Imm8,
    /// 32 bits whatever the operand size: branches.
    Imm32,
    /// The same with ModRM: XOP.
    ModRmImm32,
    /// `mov r, imm`
    ImmV,
    /// `mov al, moffs`
    Address,
    /// `test r/m, imm` or another of group 3
    Group3,
}

fn primary(opcode: u8) -> Shape {
    use Shape::*;
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => ModRm,
            4 => Imm8,
            5 => ImmZ,
            _ => Invalid,
        },
        0x50..=0x5f => Plain,
        0x63 => ModRm,
        0x68 => ImmZ,
        0x69 => ModRmImmZ,
        0x6a => Imm8,
        0x6b => ModRmImm8,
        0x6c..=0x6f => Plain,
        0x70..=0x7f => Imm8,
        0x80 | 0x83 => ModRmImm8,
        0x81 => ModRmImmZ,
        0x84..=0x8f => ModRm,
        0x90..=0x99 | 0x9b..=0x9f => Plain,
        0xa0..=0xa3 => Address,
        0xa4..=0xa7 | 0xaa..=0xaf => Plain,
        0xa8 => Imm8,
        0xa9 => ImmZ,
        0xb0..=0xb7 => Imm8,
        0xb8..=0xbf => ImmV,
        0xc0 | 0xc1 | 0xc6 => ModRmImm8,
        0xc2 | 0xca => Imm16,
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf => Plain,
        0xc7 => ModRmImmZ,
        0xc8 => Imm16Imm8,
        0xcd => Imm8,
        0xd0..=0xd3 | 0xd8..=0xdf => ModRm,
        0xd7 => Plain,
        0xe0..=0xe7 | 0xeb => Imm8,
        0xe8 | 0xe9 => Imm32,
        0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => Plain,
        0xf6 | 0xf7 => Group3,
        0xfe | 0xff => ModRm,
        _ => Invalid,
    }
}

fn secondary(opcode: u8) -> Shape {
    use Shape::*;
    match opcode {
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f | 0xa6 | 0xa7 => Invalid,
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x35 | 0x37 | 0x77 => Plain,
        0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => Plain,
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => ModRmImm8,
        0x80..=0x8f => Imm32,
        _ => ModRm,
    }
}

/// The same for VEX and EVEX.
fn vector_shape(map: u8, opcode: u8, evex: bool) -> Shape {
    match (map, opcode) {
        (1, 0x77) if !evex => Shape::Plain,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Shape::ModRmImm8,
        (1 | 2, _) => Shape::ModRm,
        (5 | 6, _) if evex => Shape::ModRm,
        _ => Shape::Invalid,
    }
}

struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn signed(&mut self, size: usize) -> Option<i64> {
        let rest = self.bytes.get(self.at..)?;
        let value = match (size, rest) {
            (0, _) => 0,
            (1, &[byte, ..]) => i64::from(byte as i8),
            (4, &[a, b, c, d, ..]) => i64::from(i32::from_le_bytes([a, b, c, d])),
            _ => {
                let mut value = 0;
                for &byte in rest.get(..size)?.iter().rev() {
                    value = value << 8 | i64::from(byte);
                }
                let unused = 64 - 8 * size as u32;
                value << unused >> unused
            }
        };
        self.at += size;
        Some(value)
    }
}

/// The instruction that `bytes` start with.
#[inline]
pub(crate) fn read(bytes: &[u8]) -> Option<Form> {
    let mut cursor = Cursor {
        bytes: &bytes[..bytes.len().min(LONGEST)],
        at: 0,
    };
    let mut form = Form {
        len: 0,
        map: 0,
        opcode: 0,
        modrm: 0,
        reg: 0,
        third: 0,
        operand: Operand::None,
        immediate: 0,
        wide: false,
        half: false,
        repeat: false,
        segment: false,
        has_rex: false,
        rex_b: 0,
        vector: false,
        evex: false,
    };
    let mut rex = 0u8;
    let mut short_address = false;
    let opcode = loop {
        let byte = cursor.byte()?;
        match byte {
            0x66 => form.half = true,
            0x67 => short_address = true,
            0xf2 | 0xf3 => form.repeat = true,
            0x64 | 0x65 => form.segment = true,
            0xf0 | 0x2e | 0x36 | 0x3e | 0x26 => {}
            0x40..=0x4f => {
                // Only right before the opcode does it count.
                rex = byte;
                form.has_rex = true;
                continue;
            }
            _ => break byte,
        }
        rex = 0;
        form.has_rex = false;
    };
    let shape = match opcode {
        0x0f => {
            form.map = 1;
            form.opcode = cursor.byte()?;
            match form.opcode {
                0x38 => {
                    form.map = 2;
                    form.opcode = cursor.byte()?;
                    Shape::ModRm
                }
                0x3a => {
                    form.map = 3;
                    form.opcode = cursor.byte()?;
                    Shape::ModRmImm8
                }
                opcode => secondary(opcode),
            }
        }
        0xc4 | 0xc5 | 0x62 => {
            form.vector = true;
            // REX bits, inverted: R X B in the first byte's top
            let first = cursor.byte()?;
            let inverted = !first;
            rex = inverted >> 5 & 4;
            let pp = match opcode {
                0xc5 => {
                    form.map = 1;
                    form.third = !first >> 3 & 15;
                    first & 3
                }
                0xc4 => {
                    rex |= inverted >> 5 & 3;
                    form.map = first & 0x1f;
                    let second = cursor.byte()?;
                    rex |= (second & 0x80) >> 4;
                    form.third = !second >> 3 & 15;
                    second & 3
                }
                _ => {
                    form.evex = true;
                    rex |= inverted >> 5 & 3;
                    form.map = first & 7;
                    let second = cursor.byte()?;
                    rex |= (second & 0x80) >> 4;
                    form.third = !second >> 3 & 15;
                    cursor.byte()?;
                    second & 3
                }
            };
            form.half = pp == 1;
            form.repeat = pp >= 2;
            form.opcode = cursor.byte()?;
            vector_shape(form.map, form.opcode, form.evex)
        }
        // XOP (AMD64 manual, volume 6): as VEX, with maps from 8 on; below that it is `pop`.
        0x8f if cursor.bytes.get(cursor.at)? & 0x1f >= 8 => {
            form.vector = true;
            let first = cursor.byte()?;
            form.map = first & 0x1f;
            let second = cursor.byte()?;
            rex = !first >> 5 | (second & 0x80) >> 4;
            form.third = !second >> 3 & 15;
            form.opcode = cursor.byte()?;
            match form.map {
                8 => Shape::ModRmImm8,
                9 => Shape::ModRm,
                10 => Shape::ModRmImm32,
                _ => Shape::Invalid,
            }
        }
        opcode => {
            form.opcode = opcode;
            primary(opcode)
        }
    };
    form.wide = rex & 8 != 0;
    form.rex_b = rex & 1;
    let with_modrm = matches!(
        shape,
        Shape::ModRm | Shape::ModRmImm8 | Shape::ModRmImmZ | Shape::ModRmImm32 | Shape::Group3
    );
    if with_modrm {
        operand(&mut cursor, &mut form, rex)?;
    }
    let z = if form.half && !form.wide { 2 } else { 4 };
    let size = match shape {
        Shape::Invalid => return None,
        Shape::Plain | Shape::ModRm => 0,
        Shape::Imm8 | Shape::ModRmImm8 => 1,
        Shape::Imm16 => 2,
        Shape::Imm16Imm8 => 3,
        Shape::Imm32 | Shape::ModRmImm32 => 4,
        Shape::ImmZ | Shape::ModRmImmZ => z,
        Shape::ImmV if form.wide => 8,
        Shape::ImmV => z,
        Shape::Address if short_address => 4,
        Shape::Address => 8,
        Shape::Group3 if form.reg & 7 >= 2 => 0,
        Shape::Group3 if form.opcode == 0xf6 => 1,
        Shape::Group3 => z,
    };
    form.immediate = cursor.signed(size)?;
    form.len = cursor.at as u8;
    Some(form)
}

/// ModRM, SIB and displacement
fn operand(cursor: &mut Cursor<'_>, form: &mut Form, rex: u8) -> Option<()> {
    let modrm = cursor.byte()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    form.modrm = modrm;
    form.reg = modrm >> 3 & 7 | (rex & 4) << 1;
    // Moves to and from control and debug registers have no memory operand.
    let registers_only = form.map == 1 && !form.vector && matches!(form.opcode, 0x20..=0x23);
    if mode == 3 || registers_only {
        form.operand = Operand::Register(rm | (rex & 1) << 3);
        return Some(());
    }
    let mut base = Some(rm | (rex & 1) << 3);
    let mut index = None;
    let mut size = match mode {
        0 => 0,
        1 => 1,
        _ => 4,
    };
    if rm == 4 {
        let sib = cursor.byte()?;
        let number = sib >> 3 & 7 | (rex & 2) << 2;
        if number != 4 {
            index = Some((number, sib >> 6));
        }
        base = Some(sib & 7 | (rex & 1) << 3);
        if sib & 7 == 5 && mode == 0 {
            base = None;
            size = 4;
        }
    } else if rm == 5 && mode == 0 {
        form.operand = Operand::Relative(cursor.signed(4)? as i32);
        return Some(());
    }
    let mut offset = cursor.signed(size)? as i32;
    if form.evex && size == 1 {
        // Scaled by the vector's size, which does not matter here.
        offset = offset.wrapping_mul(64);
    }
    form.operand = Operand::Memory(Memory {
        base,
        index,
        offset,
    });
    Some(())
}
