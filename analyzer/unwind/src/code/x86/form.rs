//! The form of an x86-64 instruction: prefixes, opcode, operands and length (Intel SDM, volume 2,
//! chapter 2 and appendix A). Separate from the effects of instructions, because everything depends
//! on correct lengths.

/// Maximum length of an instruction in bytes.
const MAX_LENGTH: usize = 15;

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

/// The parts of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// In bytes.
    pub(crate) len: u8,
    /// Opcode map. 0: one-byte opcodes; 1: 0f; 2: 0f 38; 3: 0f 3a; more: EVEX's.
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
    /// Registers that address memory, by DWARF's numbers.
    pub(super) bases: u32,
}

impl Form {
    pub(super) const NONE: Form = Form {
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
        bases: 0,
    };
}

/// The operand bytes after an opcode.
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
    /// 32 bits, whatever the operand size: branches.
    Imm32,
    /// 32 bits and ModRM: XOP.
    ModRmImm32,
    /// `mov r, imm`
    ImmV,
    /// `mov al, moffs`
    Address,
    /// `test r/m, imm` or another of group 3
    Group3,
}

/// The shapes of all opcodes of a map.
macro_rules! table {
    ($shape:expr) => {{
        let mut shapes = [Shape::Invalid; 256];
        let mut opcode = 0;
        while opcode < 256 {
            shapes[opcode] = $shape(opcode as u8);
            opcode += 1;
        }
        shapes
    }};
}

static PRIMARY: [Shape; 256] = table!(primary);
static SECONDARY: [Shape; 256] = table!(secondary);

const fn primary(opcode: u8) -> Shape {
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

const fn secondary(opcode: u8) -> Shape {
    use Shape::*;
    match opcode {
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f => Invalid,
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x35 | 0x37 | 0x77 => Plain,
        0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => Plain,
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => ModRmImm8,
        0x80..=0x8f => Imm32,
        _ => ModRm,
    }
}

/// The shape of an opcode with a VEX or EVEX prefix.
fn vector_shape(map: u8, opcode: u8, evex: bool) -> Shape {
    match (map, opcode) {
        (1, 0x77) if !evex => Shape::Plain,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Shape::ModRmImm8,
        (1 | 2, _) => Shape::ModRm,
        (5 | 6, _) if evex => Shape::ModRm,
        _ => Shape::Invalid,
    }
}

/// The meaning of each prefix byte; 0 if it is none.
static PREFIXES: [u8; 256] = {
    let mut prefixes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        prefixes[byte] = match byte as u8 {
            0x66 => HALF,
            0x67 => SHORT_ADDRESS,
            0xf2 | 0xf3 => REPEAT,
            0x64 | 0x65 => SEGMENT,
            0xf0 | 0x2e | 0x36 | 0x3e | 0x26 => IGNORED,
            0x40..=0x4f => REX,
            _ => 0,
        };
        byte += 1;
    }
    prefixes
};
const HALF: u8 = 1;
const SHORT_ADDRESS: u8 = 2;
const REPEAT: u8 = 4;
const SEGMENT: u8 = 8;
const IGNORED: u8 = 16;
const REX: u8 = 32;

/// The bytes of an instruction, followed by as many zeros as one read may go beyond. Positions are
/// taken modulo 16, so that no read fails. The length check detects an instruction that is cut off.
struct Cursor {
    bytes: [u8; 24],
    at: usize,
}

impl Cursor {
    #[inline]
    fn peek(&self) -> u8 {
        self.bytes[self.at % 16]
    }

    #[inline]
    fn byte(&mut self) -> u8 {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    #[inline]
    fn signed(&mut self, size: usize) -> i64 {
        let mut value = [0; 8];
        value.copy_from_slice(&self.bytes[self.at % 16..][..8]);
        self.at += size;
        let unused = 64 - 8 * size as u32;
        // No bytes at all give 0.
        let value = i64::from_le_bytes(value).checked_shl(unused).unwrap_or(0);
        value >> (unused % 64)
    }
}

/// Fills `form`, which must be [`Form::NONE`], from the instruction at the start of `bytes`.
/// Returns whether there is one.
#[inline]
pub(crate) fn read(bytes: &[u8], form: &mut Form) -> bool {
    let mut cursor = Cursor {
        bytes: [0; 24],
        at: 0,
    };
    let most = match bytes.first_chunk::<MAX_LENGTH>() {
        Some(chunk) => {
            cursor.bytes[..MAX_LENGTH].copy_from_slice(chunk);
            MAX_LENGTH
        }
        None => {
            cursor.bytes[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        }
    };
    let mut rex = 0u8;
    let mut prefixes = 0u8;
    let opcode = loop {
        if cursor.at >= most {
            return false;
        }
        let byte = cursor.byte();
        match PREFIXES[usize::from(byte)] {
            0 => break byte,
            // It counts only directly before the opcode.
            REX => rex = byte,
            prefix => {
                rex = 0;
                prefixes |= prefix;
            }
        }
    };
    form.has_rex = rex != 0;
    form.half = prefixes & HALF != 0;
    form.repeat = prefixes & REPEAT != 0;
    form.segment = prefixes & SEGMENT != 0;
    form.opcode = opcode;
    let mut shape = PRIMARY[usize::from(opcode)];
    if opcode == 0x0f {
        form.map = 1;
        form.opcode = cursor.byte();
        shape = match form.opcode {
            0x38 => {
                form.map = 2;
                form.opcode = cursor.byte();
                Shape::ModRm
            }
            0x3a => {
                form.map = 3;
                form.opcode = cursor.byte();
                Shape::ModRmImm8
            }
            opcode => SECONDARY[usize::from(opcode)],
        };
    } else if matches!(opcode, 0xc4 | 0xc5 | 0x62 | 0x8f)
        && let Some((vector, bits)) = vector(&mut cursor, form)
    {
        (shape, rex) = (vector, bits);
    }
    form.wide = rex & 8 != 0;
    form.rex_b = rex & 1;
    let with_modrm = matches!(
        shape,
        Shape::ModRm | Shape::ModRmImm8 | Shape::ModRmImmZ | Shape::ModRmImm32 | Shape::Group3
    );
    if with_modrm {
        operand(&mut cursor, form, rex);
    }
    let z = if form.half && !form.wide { 2 } else { 4 };
    let size = match shape {
        Shape::Invalid => return false,
        Shape::Plain | Shape::ModRm => 0,
        Shape::Imm8 | Shape::ModRmImm8 => 1,
        Shape::Imm16 => 2,
        Shape::Imm16Imm8 => 3,
        Shape::Imm32 | Shape::ModRmImm32 => 4,
        Shape::ImmZ | Shape::ModRmImmZ => z,
        Shape::ImmV if form.wide => 8,
        Shape::ImmV => z,
        Shape::Address if prefixes & SHORT_ADDRESS != 0 => 4,
        Shape::Address => 8,
        Shape::Group3 if form.reg & 7 >= 2 => 0,
        Shape::Group3 if form.opcode == 0xf6 => 1,
        Shape::Group3 => z,
    };
    form.immediate = cursor.signed(size);
    form.len = cursor.at as u8;
    cursor.at <= most
}

/// The operand bytes and REX bits of a VEX, EVEX or XOP instruction. `None` if the opcode byte
/// starts none of these.
fn vector(cursor: &mut Cursor, form: &mut Form) -> Option<(Shape, u8)> {
    let escape = form.opcode;
    // XOP (AMD64 manual, volume 6): like VEX, with maps from 8 on. Below 8 the byte is `pop`.
    if escape == 0x8f && cursor.peek() & 0x1f < 8 {
        return None;
    }
    form.vector = true;
    form.has_rex = false;
    // REX bits, inverted: R X B in the first byte's top
    let first = cursor.byte();
    let inverted = !first;
    let mut rex = inverted >> 5 & if escape == 0xc5 { 4 } else { 7 };
    let last = match escape {
        0xc5 => {
            form.map = 1;
            first
        }
        _ => {
            form.map = first & if escape == 0x62 { 7 } else { 0x1f };
            let second = cursor.byte();
            rex |= (second & 0x80) >> 4;
            second
        }
    };
    form.third = !last >> 3 & 15;
    if escape == 0x62 {
        form.evex = true;
        cursor.byte();
    }
    if escape != 0x8f {
        form.half = last & 3 == 1;
        form.repeat = last & 3 >= 2;
    }
    form.opcode = cursor.byte();
    let shape = match (escape, form.map) {
        (0x8f, 8) => Shape::ModRmImm8,
        (0x8f, 9) => Shape::ModRm,
        (0x8f, 10) => Shape::ModRmImm32,
        (0x8f, _) => Shape::Invalid,
        _ => vector_shape(form.map, form.opcode, form.evex),
    };
    Some((shape, rex))
}

/// ModRM, SIB and displacement
#[inline]
fn operand(cursor: &mut Cursor, form: &mut Form, rex: u8) {
    let modrm = cursor.byte();
    let (mode, rm) = (modrm >> 6, modrm & 7);
    form.modrm = modrm;
    form.reg = modrm >> 3 & 7 | (rex & 4) << 1;
    // Moves to and from control and debug registers have no memory operand.
    let registers_only = form.map == 1 && !form.vector && matches!(form.opcode, 0x20..=0x23);
    if mode == 3 || registers_only {
        form.operand = Operand::Register(rm | (rex & 1) << 3);
        return;
    }
    let mut base = Some(rm | (rex & 1) << 3);
    let mut index = None;
    let mut size = match mode {
        0 => 0,
        1 => 1,
        _ => 4,
    };
    if rm == 4 {
        let sib = cursor.byte();
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
        form.operand = Operand::Relative(cursor.signed(4) as i32);
        return;
    }
    let mut offset = cursor.signed(size) as i32;
    if form.evex && size == 1 {
        // The displacement is scaled by the vector's size, which does not matter here.
        offset = offset.wrapping_mul(64);
    }
    form.operand = Operand::Memory(Memory {
        base,
        index,
        offset,
    });
}
