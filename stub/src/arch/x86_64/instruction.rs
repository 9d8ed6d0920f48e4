//! The length of an x86-64 instruction, and how it depends on its address (Intel SDM vol. 2,
//! chapter 2 and appendix A). The decoder does not determine what the instruction computes.

/// Maximum length of an instruction, in bytes (SDM vol. 3, 25.25: a longer one faults).
pub(in crate::arch) const LONGEST: usize = 15;

/// A decoded instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::arch) struct Instruction {
    /// Length with all prefixes and operands, in bytes.
    pub(in crate::arch) length: usize,
    pub(in crate::arch) place: Place,
}

/// The dependence of an instruction on its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::arch) enum Place {
    /// It does not depend on its address.
    Free,
    /// Its memory operand is relative to the next instruction: the four bytes of the displacement
    /// begin at this byte.
    Operand { displacement: usize },
    /// It jumps to an address relative to the next instruction.
    Jump { when: When, offset: i32 },
    /// It pushes the next instruction's address, and jumps to an address relative to it.
    Call { offset: i32 },
    /// It pushes the next instruction's address, and jumps to the address in its ModRM operand,
    /// which begins at this byte.
    IndirectCall { modrm: usize, prefixes: Prefixes },
    /// It must be executed at its address: it enters the kernel, traps, or stores its address in
    /// another way.
    Fixed,
}

/// The condition under which a jump is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::arch) enum When {
    Always,
    /// The condition `tttn` of `jcc` (SDM vol. 2, B.1.4.7).
    Flags(u8),
    /// `jrcxz`, `jecxz`.
    CounterZero {
        wide: bool,
    },
    /// `loop`, `loope`, `loopne`: the counter is decremented.
    Loop {
        wide: bool,
        zero_flag: Option<bool>,
    },
}

/// The prefixes before the opcode.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::arch) struct Prefixes {
    /// `REX`, or zero.
    pub(super) rex: u8,
    pub(super) operand_16: bool,
    pub(super) address_32: bool,
    /// `fs` (0x64) or `gs` (0x65), or zero.
    pub(super) segment: u8,
}

/// Bytes that follow the opcode.
#[derive(Clone, Copy)]
struct Tail {
    modrm: bool,
    immediate: usize,
}

const NONE: Tail = tail(false, 0);
const MODRM: Tail = tail(true, 0);
const MODRM_BYTE: Tail = tail(true, 1);
const BYTE: Tail = tail(false, 1);

const fn tail(modrm: bool, immediate: usize) -> Tail {
    Tail { modrm, immediate }
}

/// Decodes the first instruction of `code`. `None` if a program may not execute it, or if it is
/// incomplete.
pub(in crate::arch) fn decode(code: &[u8]) -> Option<Instruction> {
    let code = &code[..code.len().min(LONGEST)];
    let mut prefixes = Prefixes::default();
    let mut at = 0;
    let (mut locked, mut repeated) = (false, false);
    loop {
        match *code.get(at)? {
            0x66 => prefixes.operand_16 = true,
            0x67 => prefixes.address_32 = true,
            segment @ (0x64 | 0x65) => prefixes.segment = segment,
            0xf0 => locked = true,
            0xf2 | 0xf3 => repeated = true,
            0x26 | 0x2e | 0x36 | 0x3e => {}
            _ => break,
        }
        at += 1;
    }
    if let rex @ 0x40..=0x4f = *code.get(at)? {
        prefixes.rex = rex;
        at += 1;
    }
    let opcode = *code.get(at)?;
    let after = at + 1;
    let mut instruction = match opcode {
        0x0f => two_bytes(code, after),
        // VEX: c5 and one byte, c4 and two with the map in the first.
        0xc5 => vector(code, after + 1, 1),
        0xc4 => vector(code, after + 2, code.get(after)? & 0x1f),
        // EVEX: three bytes, the map in the first.
        0x62 => vector(code, after + 3, code.get(after)? & 7),
        _ => one_byte(code, at, opcode, prefixes),
    }?;
    // Locked jumps are undefined. On AMD's processors, an operand-size prefix makes jumps go to
    // 16-bit addresses, and a repeat prefix changes how loops count.
    let counts = matches!(
        instruction.place,
        Place::Jump {
            when: When::Loop { .. } | When::CounterZero { .. },
            ..
        }
    );
    let odd = locked || repeated && counts || prefixes.operand_16 && prefixes.rex & 8 == 0;
    if odd && !matches!(instruction.place, Place::Free | Place::Operand { .. }) {
        instruction.place = Place::Fixed;
    }
    Some(instruction)
}

fn one_byte(code: &[u8], at: usize, opcode: u8, prefixes: Prefixes) -> Option<Instruction> {
    let after = at + 1;
    let wide = prefixes.rex & 8 != 0;
    let word = if prefixes.operand_16 && !wide { 2 } else { 4 };
    let relative = |size: usize| -> Option<i32> {
        let bytes = code.get(after..after + size)?;
        Some(match *bytes {
            [byte] => i32::from(byte as i8),
            _ => i32::from_le_bytes(bytes.try_into().ok()?),
        })
    };
    let place = match opcode {
        0xe8 => Place::Call {
            offset: relative(4)?,
        },
        0xe9 => Place::Jump {
            when: When::Always,
            offset: relative(4)?,
        },
        0xeb => Place::Jump {
            when: When::Always,
            offset: relative(1)?,
        },
        0x70..=0x7f => Place::Jump {
            when: When::Flags(opcode & 15),
            offset: relative(1)?,
        },
        0xe0..=0xe2 => Place::Jump {
            when: When::Loop {
                wide: !prefixes.address_32,
                zero_flag: [Some(false), Some(true), None][usize::from(opcode & 3)],
            },
            offset: relative(1)?,
        },
        0xe3 => Place::Jump {
            when: When::CounterZero {
                wide: !prefixes.address_32,
            },
            offset: relative(1)?,
        },
        // int3, int, int1, iret, far returns, hlt
        0xcc | 0xcd | 0xf1 | 0xcf | 0xca | 0xcb | 0xf4 => Place::Fixed,
        // xbegin
        0xc7 if code.get(after) == Some(&0xf8) => Place::Fixed,
        0xff => match code.get(after)? >> 3 & 7 {
            2 => Place::IndirectCall {
                modrm: after,
                prefixes,
            },
            // Far calls.
            3 => Place::Fixed,
            _ => Place::Free,
        },
        _ => Place::Free,
    };
    let tail = match opcode {
        // add, or, adc, sbb, and, sub, xor, cmp
        0x00..=0x3f => match opcode & 7 {
            0..=3 => MODRM,
            4 => BYTE,
            5 => tail(false, word),
            _ => return None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => NONE,
        0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => MODRM,
        // pop; the other values are AMD's XOP.
        0x8f if code.get(after)? >> 3 & 7 == 0 => MODRM,
        0x68 | 0xa9 => tail(false, word),
        0x69 | 0x81 | 0xc7 => tail(true, word),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => BYTE,
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => MODRM_BYTE,
        0xa0..=0xa3 => tail(false, if prefixes.address_32 { 4 } else { 8 }),
        0xb8..=0xbf => tail(false, if wide { 8 } else { word }),
        0xc2 | 0xca => tail(false, 2),
        0xc8 => tail(false, 3),
        0xe8 | 0xe9 => tail(false, 4),
        0xc3
        | 0xc9
        | 0xcb
        | 0xcc
        | 0xcf
        | 0xd7
        | 0xec..=0xef
        | 0xf1
        | 0xf4
        | 0xf5
        | 0xf8..=0xfd => NONE,
        // Only test has an immediate in this group.
        0xf6 if code.get(after)? >> 3 & 7 < 2 => MODRM_BYTE,
        0xf7 if code.get(after)? >> 3 & 7 < 2 => tail(true, word),
        0xf6 | 0xf7 => MODRM,
        _ => return None,
    };
    finish(code, after, tail, place)
}

fn two_bytes(code: &[u8], at: usize) -> Option<Instruction> {
    let opcode = *code.get(at)?;
    let after = at + 1;
    let place = match opcode {
        // syscall, sysret, sysenter, sysexit, rsm, ud2
        0x05 | 0x07 | 0x34 | 0x35 | 0xaa | 0x0b => Place::Fixed,
        0x80..=0x8f => {
            let offset = code.get(after..after + 4)?;
            Place::Jump {
                when: When::Flags(opcode & 15),
                offset: i32::from_le_bytes(offset.try_into().ok()?),
            }
        }
        _ => Place::Free,
    };
    let tail = match opcode {
        0x38 => return finish(code, after + 1, MODRM, place),
        0x3a => return finish(code, after + 1, MODRM_BYTE, place),
        0x04
        | 0x0a
        | 0x0c
        | 0x24..=0x27
        | 0x36
        | 0x39
        | 0x3b..=0x3f
        | 0x7a
        | 0x7b
        | 0xa6
        | 0xa7 => return None,
        // extrq, insertq have two immediates.
        0x78 => return None,
        0x05..=0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => NONE,
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => MODRM_BYTE,
        0x80..=0x8f => tail(false, 4),
        _ => MODRM,
    };
    finish(code, after, tail, place)
}

/// An instruction with a VEX or EVEX prefix; `at` is its opcode.
fn vector(code: &[u8], at: usize, map: u8) -> Option<Instruction> {
    let opcode = *code.get(at)?;
    let tail = match (map, opcode) {
        (1, 0x77) => NONE,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) => MODRM_BYTE,
        (1 | 2 | 5 | 6, _) => MODRM,
        (3, _) => MODRM_BYTE,
        _ => return None,
    };
    finish(code, at + 1, tail, Place::Free)
}

/// Adds the length of the bytes after the opcode.
fn finish(code: &[u8], at: usize, tail: Tail, place: Place) -> Option<Instruction> {
    let mut length = at + tail.immediate;
    let mut place = place;
    if tail.modrm {
        let operand = operand(code, at)?;
        length += operand.length;
        if operand.rip_relative && place == Place::Free {
            place = Place::Operand {
                displacement: at + 1,
            };
        }
    }
    (length <= code.len()).then_some(Instruction { length, place })
}

/// A ModRM byte with its SIB byte and displacement (SDM vol. 2, table 2-2).
pub(in crate::arch) struct Operand {
    /// Length of all three, in bytes.
    pub(in crate::arch) length: usize,
    pub(in crate::arch) rip_relative: bool,
}

/// Reads the operand whose ModRM byte is at `at`.
pub(in crate::arch) fn operand(code: &[u8], at: usize) -> Option<Operand> {
    let modrm = *code.get(at)?;
    let (mode, low) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(Operand {
            length: 1,
            rip_relative: false,
        });
    }
    let sib = low == 4;
    let base = if sib { code.get(at + 1)? & 7 } else { low };
    let displacement = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (1, _) => 1,
        _ => 0,
    };
    Some(Operand {
        length: 1 + usize::from(sib) + displacement,
        rip_relative: mode == 0 && low == 5,
    })
}
