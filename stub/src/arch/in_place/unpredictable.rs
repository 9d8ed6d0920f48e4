//! The A32 and T32 instructions that are UNPREDICTABLE in DDI 0406C because the program counter is
//! an operand. Every processor may execute them differently, and differently at each address.
//! Instructions that are UNPREDICTABLE because of register 13 or wrong fixed bits do not count: a
//! processor executes them in the same way at every address.

/// Whether the register number in these four bits is the program counter.
fn is_pc(code: u32, low: u32) -> bool {
    code >> low & 15 == 15
}

fn any(code: u32, lows: &[u32]) -> bool {
    lows.iter().any(|low| is_pc(code, *low))
}

/// Whether a register pair is invalid: it must begin with an even register other than 14.
fn bad_pair(first: u32) -> bool {
    first & 1 != 0 || first & 15 == 14
}

/// Whether an A32 instruction is unpredictable (A5.1).
pub(super) fn a32(code: u32) -> bool {
    let (loads, writes_back) = (
        code >> 20 & 1 != 0,
        code & 1 << 24 == 0 || code & 1 << 21 != 0,
    );
    let set = |bit: u32| code >> bit & 1 != 0;
    match (code >> 25 & 7, set(7), set(4)) {
        // Loads and stores of Advanced SIMD elements, preloads: 1111 010x, 1111 0110
        (2 | 3, ..) if code >> 28 == 15 => any(code, &[16]) || set(25) && any(code, &[0]),
        // RFE and SRS, which need a privileged mode.
        (4, ..) if code >> 28 == 15 => true,
        // The other unconditional instructions have no general registers.
        (0..=3, ..) if code >> 28 == 15 => false,
        (0, true, true) => match (code >> 5 & 3, code >> 24 & 1) {
            (0, 0) => any(code, &[0, 8, 12, 16]),
            // LDREX and similar: the last four bits should be 1111.
            (0, _) => {
                let pair = code >> 21 & 3 == 1 && bad_pair(code >> if loads { 12 } else { 0 });
                any(code, &[12, 16]) || !loads && any(code, &[0]) || pair
            }
            // LDRD and STRD
            (2 | 3, _) if !loads && bad_pair(code >> 12) => true,
            _ => any(code, &[12]) || !set(22) && any(code, &[0]) || writes_back && any(code, &[16]),
        },
        // BX, BLX, BXJ; CLZ
        (0, false, true) if code & 0x0fff_ff00 == 0x012f_ff00 => any(code, &[0]),
        (0, false, true) if code & 0x0fff_0ff0 == 0x016f_0f10 => any(code, &[0, 12]),
        (0, false, true) => any(code, &[0, 8, 12, 16]),
        // MRS, MSR; multiplications of halfwords
        (0, false, false) if code & 0x0190_0000 == 0x0100_0000 => {
            if set(21) {
                any(code, &[0])
            } else {
                any(code, &[12])
            }
        }
        (0, true, false) if code & 0x0190_0000 == 0x0100_0000 => any(code, &[0, 8, 12, 16]),
        // MSR and hints: these bits should be 1111.
        (1, ..) if code & 0x01b0_0000 == 0x0120_0000 => false,
        // With the flags: a return from an exception. Without: the result may be a halfword address
        // (BXWritePC, A2.3.1). Comparisons have no result.
        (0 | 1, ..) => any(code, &[12]),
        // Media: 0110 0, 0110 1; 0111 0, SDIV, SMLALD; USAD8; bit fields
        (3, _, true) => match code >> 23 & 3 {
            0 => any(code, &[0, 12, 16]),
            1 => any(code, &[0, 12]) || any(code, &[16]) && code >> 4 & 15 != 7,
            2 => any(code, &[0, 8, 16]) || code >> 20 & 7 == 4 && any(code, &[12]),
            _ if code >> 20 & 7 == 0 => any(code, &[0, 8, 16]),
            _ => any(code, &[12]) || any(code, &[0]) && code >> 21 & 3 != 2,
        },
        // Bytes; the offset register
        (2 | 3, ..) => {
            set(22) && any(code, &[12])
                || set(25) && any(code, &[0])
                || writes_back && any(code, &[16])
        }
        // With `^`: registers of other modes.
        (4, ..) => any(code, &[16]) || set(22) || code & 0xffff == 0,
        (6 | 7, ..) => coprocessor(code),
        _ => false,
    }
}

/// Whether a coprocessor instruction is unpredictable; A32 and T32 share the lower 28 bits.
fn coprocessor(code: u32) -> bool {
    let set = |bit: u32| code >> bit & 1 != 0;
    match code >> 24 & 15 {
        // MCRR, MRRC
        12 if code & 0x0fe0_0000 == 0x0c40_0000 => any(code, &[12, 16]),
        // LDC, STC, VLDM, VSTM: only loads may be literals.
        12 | 13 => is_pc(code, 16) && !(set(24) && !set(21) && set(20)),
        // MCR, MRC. VMRS to the flags does not depend on the address.
        14 => set(4) && is_pc(code, 12) && code & 0x0fff_0fff != 0x0ef1_0a10,
        _ => false,
    }
}

/// Whether a 32-bit T32 instruction is unpredictable (A6.3).
pub(super) fn t32(first: u16, second: u16) -> bool {
    let code = u32::from(first) << 16 | u32::from(second);
    let set = |bit: u32| code >> bit & 1 != 0;
    let loads = set(20);
    // AND, EOR, ADD, SUB with the flags are comparisons without a result; ORR and ORN are MOV and
    // MVN without a first operand.
    let processing = || {
        let operation = code >> 21 & 15;
        let compares = set(20) && matches!(operation, 0 | 4 | 8 | 13);
        is_pc(code, 8) && !compares || is_pc(code, 16) && !matches!(operation, 2 | 3)
    };
    match code >> 25 & 15 {
        // LDM, STM; RFE and SRS need a privileged mode.
        0b0100 if !set(22) => {
            let list = code & 0xffff;
            let bad = if loads {
                list >> 14 == 3
            } else {
                list >> 15 == 1
            };
            is_pc(code, 16) || bad || set(24) == set(23)
        }
        // TBB, TBH
        0b0100 if code & 0xfff0_ffe0 == 0xe8d0_f000 => is_pc(code, 0),
        // Exclusive; the other bits should be 1111.
        0b0100 if code & 0x0120_0000 == 0 && loads => {
            let pair = set(23) && code >> 4 & 15 == 7;
            any(code, &[12, 16]) || pair && is_pc(code, 8)
        }
        0b0100 if code & 0x0120_0000 == 0 => {
            let pair = set(23) && code >> 4 & 15 == 7;
            any(code, &[12, 16])
                || is_pc(code, if set(23) { 0 } else { 8 })
                || pair && is_pc(code, 8)
        }
        // LDRD, STRD: only LDRD may be a literal.
        0b0100 => any(code, &[8, 12]) || is_pc(code, 16) && !(loads && set(24) && !set(21)),
        0b0101 => is_pc(code, 0) || processing(),
        0b0110 | 0b0111 | 0b1110 | 0b1111 => coprocessor(code & 0x0fff_ffff),
        // Immediate operands, by A6.3.1.
        0b1000 | 0b1010 if !set(15) => processing(),
        // ADR, MOVW, MOVT, BFC have no first operand.
        0b1001 | 0b1011 if !set(15) => {
            let none = matches!(code >> 20 & 31, 0 | 4 | 10 | 12 | 22);
            is_pc(code, 8) || is_pc(code, 16) && !none
        }
        // MSR, BXJ; SUBS PC, LR returns from an exception; MRS
        0b1001 if code & 0xd000 == 0x8000 && code >> 23 & 7 == 7 => match code >> 20 & 31 {
            24 | 25 | 28 => is_pc(code, 16),
            29 => true,
            30 | 31 => is_pc(code, 8),
            _ => false,
        },
        // Advanced SIMD elements
        0b1100 if set(24) && !loads => is_pc(code, 16),
        // Single loads and stores, with or without an offset register.
        0b1100 => {
            let added = !set(23) && code >> 6 & 63 == 0 && !is_pc(code, 16);
            !loads && is_pc(code, 12) || added && is_pc(code, 0)
        }
        // Register operands: extensions may have no first operand. Multiplications; long ones,
        // among which divisions have one result.
        0b1101 if !set(24) => {
            let extends = !set(23) && set(7);
            any(code, &[0, 8]) || is_pc(code, 16) && !extends
        }
        0b1101 if !set(23) => any(code, &[0, 8, 16]),
        0b1101 => any(code, &[0, 8, 16]) || is_pc(code, 12) && code >> 20 & 13 != 9,
        _ => false,
    }
}
