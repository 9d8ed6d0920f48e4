//! Decodes T32 (DDI 0406C, A6): the instructions that write the program counter, and the value.
//!
//! Forms that are UNPREDICTABLE with the program counter as their destination decode as not writing
//! it: no compiler or assembler emits them.

use super::flow::{ALWAYS, Flow, Instruction, Operand};

/// Whether a halfword is the first of a 32-bit instruction: 11101, 11110 or 11111 (A6.1).
pub(super) fn is_wide(first: u16) -> bool {
    first >> 11 >= 0b11101
}

/// Decodes one instruction. `second` is used only if the first halfword [`is_wide`].
pub(super) fn decode(first: u16, second: u16) -> Instruction {
    let (first_word, second_word) = (u32::from(first), u32::from(second));
    if is_wide(first) {
        let (condition, flow) = wide(first_word, second_word);
        return Instruction {
            size: 4,
            condition,
            flow,
        };
    }
    let (condition, flow) = narrow(first_word);
    Instruction {
        size: 2,
        condition,
        flow,
    }
}

fn field(code: u32, low: u32) -> u8 {
    (code >> low & 15) as u8
}

/// Sign-extends the lowest `bits` bits.
fn extend(number: u32, bits: u32) -> i32 {
    (number << (32 - bits)) as i32 >> (32 - bits)
}

fn jump(offset: i32) -> Flow {
    Flow::Jump {
        offset,
        exchange: false,
        link: false,
    }
}

fn narrow(code: u32) -> (u8, Flow) {
    let flow = match code >> 8 {
        // ADD (register) T2: 0100 0100 dmmm mddd; MOV (register) T1: 0100 0110
        0x44 | 0x46 if code & 0x87 == 0x87 => Flow::Plain {
            register: field(code, 3),
            add: code >> 8 == 0x44,
        },
        // BX, BLX: 0100 0111 lmmm m000
        0x47 => Flow::Register {
            register: field(code, 3),
            link: code & 0x80 != 0,
        },
        // CBZ, CBNZ: 1011 n0i1 iiii innn
        0xb1 | 0xb3 | 0xb9 | 0xbb => Flow::JumpIfZero {
            register: (code & 7) as u8,
            zero: code & 0x800 == 0,
            offset: code >> 3 & 0x40 | code >> 2 & 0x3e,
        },
        // POP with the program counter: 1011 1101 and a bit for each of r0-r7
        0xbd => Flow::Load {
            base: 13,
            offset: Operand::Number(4 * (code & 0xff).count_ones()),
        },
        // IT: 1011 1111 cccc mmmm, hints if mmmm is 0
        0xbf if code & 15 != 0 => Flow::IfThen((code & 0xff) as u8),
        0xdf => Flow::Kernel(code & 0xff),
        // B T1: 1101 cccc iiii iiii; 1110 is undefined
        0xd0..=0xdd => return (field(code, 8), jump(extend(code & 0xff, 8) << 1)),
        // B T2: 1110 0iii iiii iiii
        0xe0..=0xe7 => jump(extend(code & 0x7ff, 11) << 1),
        _ => Flow::Next,
    };
    (ALWAYS, flow)
}

fn wide(first: u32, second: u32) -> (u8, Flow) {
    let flow = match first >> 9 & 0xf {
        // Load and store multiple, dual and exclusive, table branch: 1110 100x
        0b0100 if first & 0x40 != 0 => dual_or_exclusive(first, second),
        0b0100 => loaded_multiple(first, second),
        // Branches and miscellaneous control: 1111 0xxx with the second 1xxx
        0b1000..=0b1011 if second & 0x8000 != 0 => return branch(first, second),
        // LDR to the program counter: 1111 1000 x101 nnnn 1111 (A6.3.7)
        0b1100 if first & 0x170 == 0x50 && second >> 12 == 15 => loaded(first, second),
        _ => Flow::Next,
    };
    (ALWAYS, flow)
}

/// LDM and POP: 1110 1000 10W1 nnnn (IA), 1110 1001 00W1 nnnn (DB), and a bit for each register.
fn loaded_multiple(first: u32, second: u32) -> Flow {
    if first & 0x10 == 0 || second & 0x8000 == 0 {
        return Flow::Next;
    }
    let last = match first >> 7 & 3 {
        0b01 => 4 * (second.count_ones() - 1),
        0b10 => 4_u32.wrapping_neg(),
        // RFE, which programs cannot execute.
        _ => return Flow::Next,
    };
    Flow::Load {
        base: field(first, 0),
        offset: Operand::Number(last),
    }
}

/// 1110 1000 x1xx (A6.3.6).
fn dual_or_exclusive(first: u32, second: u32) -> Flow {
    match (first >> 4 & 0xff, second >> 4 & 15) {
        (0x84, _) => Flow::StoreExclusive,
        (0x85, _) => Flow::LoadExclusive,
        // TBB, TBH: 1110 1000 1101 nnnn 1111 0000 000h mmmm
        (0x8d, 0 | 1) => Flow::Table {
            base: field(first, 0),
            index: field(second, 0),
            wide: second & 0x10 != 0,
        },
        // STREXB, STREXH, STREXD: 0100, 0101, 0111; STLEX and similar (ARMv8): 11xx
        (0x8c, 4 | 5 | 7 | 12..) => Flow::StoreExclusive,
        (0x8d, 4 | 5 | 7 | 12..) => Flow::LoadExclusive,
        _ => Flow::Next,
    }
}

/// 1111 0xxx xxxx xxxx 1xxx xxxx xxxx xxxx (A6.3.4).
fn branch(first: u32, second: u32) -> (u8, Flow) {
    let sign = first >> 10 & 1;
    let (j1, j2) = (second >> 13 & 1, second >> 11 & 1);
    // I1 = NOT(J1 EOR S), I2 = NOT(J2 EOR S)
    let far = extend(
        sign << 24
            | (j1 ^ sign ^ 1) << 23
            | (j2 ^ sign ^ 1) << 22
            | (first & 0x3ff) << 12
            | (second & 0x7ff) << 1,
        25,
    );
    let flow = match (second >> 14 & 1, second >> 12 & 1) {
        // B T3: 1111 0Scc ccii iiii 10j0 jiii iiii iiii; conditions 111x are other instructions
        (0, 0) => {
            let condition = field(first, 6);
            if condition >= 14 {
                return (ALWAYS, control(first, second));
            }
            let offset =
                sign << 20 | j2 << 19 | j1 << 18 | (first & 0x3f) << 12 | (second & 0x7ff) << 1;
            return (condition, jump(extend(offset, 21)));
        }
        // B T4
        (0, _) => jump(far),
        // BLX T2 to a halfword: UNDEFINED
        (_, 0) if second & 1 != 0 => Flow::Next,
        // BLX T2
        (_, 0) => Flow::Jump {
            offset: far,
            exchange: true,
            link: true,
        },
        // BL T1
        (_, _) => Flow::Jump {
            offset: far,
            exchange: false,
            link: true,
        },
    };
    (ALWAYS, flow)
}

/// BXJ: 1111 0011 1100 mmmm 1000 1111 0000 0000. The others do not jump.
fn control(first: u32, second: u32) -> Flow {
    if first & 0xfff0 == 0xf3c0 && second == 0x8f00 {
        return Flow::Register {
            register: field(first, 0),
            link: false,
        };
    }
    Flow::Next
}

/// LDR T2, T3, T4 and literal (A6.3.7).
fn loaded(first: u32, second: u32) -> Flow {
    let base = field(first, 0);
    let low = second & 0xff;
    let offset = if base == 15 {
        // 1111 1000 U101 1111 1111 iiii iiii iiii
        let number = second & 0xfff;
        if first & 0x80 != 0 {
            number
        } else {
            number.wrapping_neg()
        }
    } else if first & 0x80 != 0 {
        // 1111 1000 1101 nnnn 1111 iiii iiii iiii
        second & 0xfff
    } else if second & 0x800 != 0 {
        // 1111 1000 0101 nnnn 1111 1PUW iiii iiii
        match (second & 0x400 != 0, second & 0x200 != 0) {
            (false, _) => 0,
            (true, true) => low,
            (true, false) => low.wrapping_neg(),
        }
    } else {
        // 1111 1000 0101 nnnn 1111 0000 00ii mmmm
        return Flow::Load {
            base,
            offset: Operand::Shifted {
                register: field(second, 0),
                kind: 0,
                amount: (second >> 4 & 3) as u8,
                negative: false,
            },
        };
    };
    Flow::Load {
        base,
        offset: Operand::Number(offset),
    }
}
