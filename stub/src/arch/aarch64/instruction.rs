//! The dependence of an A64 instruction on its address (Arm ARM DDI 0487, C4.1).

/// The dependence of an instruction on its address. Offsets are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// It does not depend on its address.
    Free,
    /// `adr`, `adrp`: an address near the instruction, or near its page.
    Address {
        register: u8,
        offset: i64,
        page: bool,
    },
    /// `ldr` of a literal into a general register.
    Literal {
        register: u8,
        offset: i64,
        size: Size,
    },
    /// `prfm` of a literal: a hint.
    Hint,
    /// `b`, `bl`, `b.cond`, `cbz`, `cbnz`, `tbz`, `tbnz`.
    Jump { when: When, offset: i64, link: bool },
    /// `br`, `blr`, `ret`.
    Register { register: u8, link: bool },
    /// It must be executed at its address: exceptions, literals for the SIMD registers, `blraa`.
    Fixed,
}

/// Size and extension of a literal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    Word,
    Double,
    /// A word, sign-extended to 64 bits.
    Signed,
}

/// The condition under which a jump is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    Always,
    /// A condition (C1.2.4).
    Flags(u8),
    /// A register is zero, or is not zero.
    Zero {
        register: u8,
        wide: bool,
        zero: bool,
    },
    /// A bit of a register has this value.
    Bit {
        register: u8,
        bit: u8,
        set: bool,
    },
}

/// The result of `adr` at `pc`, or of `adrp` if `page`.
pub(super) fn address(pc: u64, offset: i64, page: bool) -> u64 {
    match page {
        true => (pc & !0xfff).wrapping_add_signed(offset << 12),
        false => pc.wrapping_add_signed(offset),
    }
}

/// Decodes one instruction.
pub(super) fn decode(code: u32) -> Place {
    let register = (code & 31) as u8;
    // imm19 at bit 5, imm14 at bit 5, imm26 at bit 0: words.
    let imm19 = 4 * extend(code >> 5, 19);
    let link = code >> 31 != 0;
    match code >> 24 {
        // ADR, ADRP: pll1 0000 iiii iiii iiii iiii iiid dddd
        0x10 | 0x30 | 0x50 | 0x70 | 0x90 | 0xb0 | 0xd0 | 0xf0 => Place::Address {
            register,
            offset: extend(code >> 5, 19) << 2 | i64::from(code >> 29 & 3),
            page: link,
        },
        // LDR (literal): xx01 1v00
        0x18 => literal(register, imm19, Size::Word),
        0x58 => literal(register, imm19, Size::Double),
        0x98 => literal(register, imm19, Size::Signed),
        0xd8 => Place::Hint,
        0x1c | 0x5c | 0x9c | 0xdc => Place::Fixed,
        // B, BL: l001 01ii
        0x14..=0x17 | 0x94..=0x97 => Place::Jump {
            when: When::Always,
            offset: 4 * extend(code, 26),
            link,
        },
        // B.cond, BC.cond: 0101 0100 iiii iiii iiii iiii iiic cccc
        0x54 => Place::Jump {
            when: When::Flags((code & 15) as u8),
            offset: imm19,
            link: false,
        },
        // CBZ, CBNZ: s011 010n
        0x34 | 0x35 | 0xb4 | 0xb5 => Place::Jump {
            when: When::Zero {
                register,
                wide: link,
                zero: code >> 24 & 1 == 0,
            },
            offset: imm19,
            link: false,
        },
        // TBZ, TBNZ: b011 011n bbbb biii iiii iiii iiit tttt
        0x36 | 0x37 | 0xb6 | 0xb7 => Place::Jump {
            when: When::Bit {
                register,
                bit: (code >> 19 & 31 | (code >> 31) << 5) as u8,
                set: code >> 24 & 1 != 0,
            },
            offset: 4 * extend(code >> 5, 14),
            link: false,
        },
        // SVC, HVC, SMC, BRK, HLT, DCPS: 1101 0100
        0xd4 => Place::Fixed,
        0xd6 | 0xd7 => by_register(code),
        _ => Place::Free,
    }
}

fn literal(register: u8, offset: i64, size: Size) -> Place {
    Place::Literal {
        register,
        offset,
        size,
    }
}

/// Unconditional branches to a register: 1101 011z 0oo1 1111 0000 aMnn nnnm mmmm.
fn by_register(code: u32) -> Place {
    let register = (code >> 5 & 31) as u8;
    match code & 0xffff_fc1f {
        0xd61f_0000 | 0xd65f_0000 => Place::Register {
            register,
            link: false,
        },
        0xd63f_0000 => Place::Register {
            register,
            link: true,
        },
        // Branches without a link (BRAA, RETAA and similar) have the same effect anywhere.
        _ if code >> 21 & 3 == 1 => Place::Fixed,
        _ => Place::Free,
    }
}

/// Sign-extends the lowest `bits` bits.
fn extend(number: u32, bits: u32) -> i64 {
    i64::from((number << (32 - bits)) as i32 >> (32 - bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    // `aarch64-linux-gnu-as` assembled these words from the text beside them, at address 0.
    #[test]
    fn places() {
        let jump = |when, offset, link| Place::Jump { when, offset, link };
        for (code, place) in [
            (
                0x1000_0100,
                Place::Address {
                    register: 0,
                    offset: 0x20,
                    page: false,
                },
            ), // adr x0, .+32
            (
                0xb0ff_ffe1,
                Place::Address {
                    register: 1,
                    offset: -3,
                    page: true,
                },
            ), // adrp x1, .-3 pages
            (0x5800_0043, literal(3, 8, Size::Double)), // ldr x3, .+8
            (0x18ff_ffe3, literal(3, -4, Size::Word)),  // ldr w3, .-4
            (0x9800_0043, literal(3, 8, Size::Signed)), // ldrsw x3, .+8
            (0x9c00_0040, Place::Fixed),                // ldr q0, .+8
            (0xd800_0040, Place::Hint),                 // prfm pldl1keep, .+8
            (0x1400_0002, jump(When::Always, 8, false)), // b .+8
            (0x97ff_ffff, jump(When::Always, -4, true)), // bl .-4
            (0x5400_0041, jump(When::Flags(1), 8, false)), // b.ne .+8
            (
                0xb400_0045,
                jump(
                    When::Zero {
                        register: 5,
                        wide: true,
                        zero: true,
                    },
                    8,
                    false,
                ),
            ), // cbz x5, .+8
            (
                0x35ff_ffe5,
                jump(
                    When::Zero {
                        register: 5,
                        wide: false,
                        zero: false,
                    },
                    -4,
                    false,
                ),
            ), // cbnz w5, .-4
            (
                0xb608_0047,
                jump(
                    When::Bit {
                        register: 7,
                        bit: 33,
                        set: false,
                    },
                    8,
                    false,
                ),
            ), // tbz x7, #33, .+8
            (
                0x3718_0047,
                jump(
                    When::Bit {
                        register: 7,
                        bit: 3,
                        set: true,
                    },
                    8,
                    false,
                ),
            ), // tbnz w7, #3, .+8
            (
                0xd65f_03c0,
                Place::Register {
                    register: 30,
                    link: false,
                },
            ), // ret
            (
                0xd63f_0200,
                Place::Register {
                    register: 16,
                    link: true,
                },
            ), // blr x16
            (0xd65f_0bff, Place::Free),                 // retaa
            (0xd63f_0800, Place::Fixed),                // blraaz x0
            (0xd400_0001, Place::Fixed),                // svc #0
            (0xa9be_7bfd, Place::Free),                 // stp x29, x30, [sp, #-32]!
            (0xd503_233f, Place::Free),                 // paciasp
        ] {
            assert_eq!(decode(code), place, "{code:#x}");
        }
    }
}
