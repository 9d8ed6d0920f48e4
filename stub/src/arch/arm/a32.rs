//! Decodes A32 (DDI 0406C, A5): the instructions that write the program counter, and the value.
//!
//! Forms that are UNPREDICTABLE with the program counter as their destination decode as not writing
//! it: no compiler or assembler emits them.

use super::flow::{Flow, Instruction, Operand};

/// Decodes one instruction.
pub(super) fn decode(code: u32) -> Instruction {
    let condition = (code >> 28) as u8;
    let flow = if condition == 15 {
        unconditional(code)
    } else {
        conditional(code)
    };
    Instruction {
        size: 4,
        condition,
        flow,
    }
}

fn field(code: u32, low: u32) -> u8 {
    (code >> low & 15) as u8
}

fn bit(code: u32, number: u32) -> bool {
    code >> number & 1 != 0
}

/// `iiii iiii iiii iiii iiii iiii` words, signed.
fn branch_offset(code: u32) -> i32 {
    (code << 8) as i32 >> 6
}

fn unconditional(code: u32) -> Flow {
    // BLX (immediate): 1111 101H iiii iiii iiii iiii iiii iiii
    if code >> 25 & 7 == 0b101 {
        return Flow::Jump {
            offset: branch_offset(code) + (i32::from(bit(code, 24)) << 1),
            exchange: true,
            link: true,
        };
    }
    Flow::Next
}

fn conditional(code: u32) -> Flow {
    match code >> 25 & 7 {
        0b000 => registers(code),
        // MOVW, MOVT, MSR, hints: 0011 0xx0
        0b001 if code >> 23 & 3 == 0b10 && !bit(code, 20) => Flow::Next,
        0b001 => {
            let rotation = 2 * (code >> 8 & 15);
            computed(code, Operand::Number((code & 0xff).rotate_right(rotation)))
        }
        0b010 => loaded(code, Operand::Number(signed(code, code & 0xfff))),
        // Media instructions: 011x xxxx .... .... .... .... ...1 ....
        0b011 if bit(code, 4) => Flow::Next,
        0b011 => loaded(code, shifted(code, !bit(code, 23))),
        0b100 => loaded_multiple(code),
        0b101 => Flow::Jump {
            offset: branch_offset(code),
            exchange: false,
            link: bit(code, 24),
        },
        // SVC: 1111
        0b111 if bit(code, 24) => Flow::Kernel(code & 0x00ff_ffff),
        _ => Flow::Next,
    }
}

/// Data processing with registers, and other instructions in its encoding space (A5.2).
fn registers(code: u32) -> Flow {
    // BX, BXJ, BLX: cccc 0001 0010 1111 1111 1111 00tt mmmm
    if code & 0x0fff_ffc0 == 0x012f_ff00 && matches!(code >> 4 & 3, 1..=3) {
        return Flow::Register {
            register: field(code, 0),
            link: code >> 4 & 3 == 3,
        };
    }
    match code & 0x0f90_0cf0 {
        // LDREX, LDREXD, LDREXB, LDREXH: .... 0001 1xx1 .... .... 1111 1001 1111; LDAEX: 1110
        0x0190_0c90 if code & 0x200 != 0 => return Flow::LoadExclusive,
        0x0180_0c90 if code & 0x200 != 0 => return Flow::StoreExclusive,
        _ => {}
    }
    let by_register = bit(code, 4);
    let multiply_or_store = by_register && bit(code, 7);
    let miscellaneous = code >> 23 & 3 == 0b10 && !bit(code, 20);
    if multiply_or_store || miscellaneous {
        return Flow::Next;
    }
    let operand = if by_register {
        Operand::ShiftedBy {
            register: field(code, 0),
            kind: (code >> 5 & 3) as u8,
            by: field(code, 8),
        }
    } else {
        shifted(code, false)
    };
    computed(code, operand)
}

fn computed(code: u32, second: Operand) -> Flow {
    let operation = field(code, 21);
    // TST, TEQ, CMP and CMN have no destination.
    if field(code, 12) != 15 || (8..12).contains(&operation) {
        return Flow::Next;
    }
    Flow::Compute {
        operation,
        first: field(code, 16),
        second,
    }
}

/// The register `mmmm`, shifted by `iiiii tt0`.
fn shifted(code: u32, negative: bool) -> Operand {
    Operand::Shifted {
        register: field(code, 0),
        kind: (code >> 5 & 3) as u8,
        amount: (code >> 7 & 31) as u8,
        negative,
    }
}

/// An offset, which bit U adds or subtracts.
fn signed(code: u32, number: u32) -> u32 {
    if bit(code, 23) {
        number
    } else {
        number.wrapping_neg()
    }
}

/// LDR: cccc 01xP UBWL nnnn tttt. Only a word can be loaded into the program counter.
fn loaded(code: u32, offset: Operand) -> Flow {
    let to_pc = bit(code, 20) && !bit(code, 22) && field(code, 12) == 15;
    if !to_pc {
        return Flow::Next;
    }
    Flow::Load {
        base: field(code, 16),
        offset: if bit(code, 24) {
            offset
        } else {
            Operand::Number(0)
        },
    }
}

/// LDM: cccc 100P USW1 nnnn and a bit for each register; the program counter is the highest word.
fn loaded_multiple(code: u32) -> Flow {
    if !bit(code, 20) || !bit(code, 15) {
        return Flow::Next;
    }
    let words = (code & 0xffff).count_ones();
    // Offset of the last of n words from the base: IA 4n - 4, IB 4n, DA 0, DB -4.
    let last = match (bit(code, 24), bit(code, 23)) {
        (false, true) => 4 * (words - 1),
        (true, true) => 4 * words,
        (false, false) => 0,
        (true, false) => 4_u32.wrapping_neg(),
    };
    Flow::Load {
        base: field(code, 16),
        offset: Operand::Number(last),
    }
}
