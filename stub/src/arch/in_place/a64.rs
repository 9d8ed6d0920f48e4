//! The A64 part of `in_place`: classes of instructions, random instructions, and the kernel's
//! register sets (`struct user_pt_regs`, `struct user_fpsimd_state`).

use super::in_place::{Random, get};

/// Size of a register, in bytes.
pub(super) const WORD: usize = 8;
pub(super) const PC: usize = 32;
pub(super) const SP: usize = 31;
pub(super) const FLAGS: usize = 33;
/// Note type and size of NT_PRSTATUS.
pub(super) const GENERAL: (u32, usize) = (1, 34 * 8);
/// Note type and size of NT_PRFPREG.
pub(super) const VECTOR: (u32, usize) = (2, 528);
/// Registers that an instruction may use.
pub(super) const FREE: [usize; 31] = {
    let mut all = [0; 31];
    let mut index = 0;
    while index < 31 {
        all[index] = index;
        index += 1;
    }
    all
};
/// N, Z, C, V.
pub(super) const STATUS: u64 = 0xf000_0000;
/// SSBS belongs to the kernel, which may set it when it switches threads.
pub(super) const KERNELS: u64 = 1 << 12;
/// UDF.
pub(super) const FILL: u32 = 0;

/// An instruction under test.
#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) code: Vec<u8>,
    pub(super) kind: usize,
    pub(super) offset: u64,
}

impl Instruction {
    fn new(code: u32) -> Instruction {
        Instruction {
            code: code.to_le_bytes().to_vec(),
            kind: 4,
            offset: 0,
        }
    }

    /// A trap after the instruction.
    pub(super) fn behind(&self) -> Vec<u8> {
        0xd420_0000_u32.to_le_bytes().to_vec()
    }

    /// The flags, unchanged.
    pub(super) fn mode(&self, flags: u64, _random: &mut Random) -> u64 {
        flags
    }
}

/// Nothing to do: no register says that a thread is in a call.
pub(super) fn not_in_a_call(_general: &mut [u8]) {}

pub(super) fn shown(general: &[u8]) -> String {
    let words: Vec<String> = (0..34).map(|n| format!("{:x}", get(general, n))).collect();
    words.join(" ")
}

pub(super) fn classes() -> Vec<(String, Vec<Instruction>)> {
    let classes = A64.iter().map(|(class, codes)| {
        let instructions = codes.iter().map(|code| Instruction::new(*code));
        ((*class).to_owned(), instructions.collect())
    });
    classes.collect()
}

/// A random instruction that has the same effect each time, and leaves the test process in a state
/// that the test can restore.
pub(super) fn random(random: &mut Random) -> Option<Instruction> {
    let code = random.word();
    // Only hints and barriers of the system instructions, and no branch to itself.
    let system = code >> 22 == 0xd500_0000 >> 22 && code >> 12 & !1 != 0xd_5032;
    let stands = code & 0x03ff_ffff == 0 && code >> 26 & 31 == 5;
    let stands_if =
        matches!(code >> 24, 0x54 | 0x34..=0x37 | 0xb4..=0xb7) && code >> 5 & 0x3fff == 0;
    // BC.cond, which these processors do not have.
    let hinted = code >> 24 == 0x54 && code & 16 != 0;
    (!system && !stands && !stands_if && !hinted).then(|| Instruction::new(code))
}

// The text of each is the GNU assembler's.
const A64: &[(&str, &[u32])] = &[
    (
        "data processing",
        &[
            0xd280_0020, // mov x0, #1
            0xab03_0041, // adds x1, x2, x3
            0xfa03_0041, // sbcs x1, x2, x3
            0xd101_03ff, // sub sp, sp, #64
            0x9100_43e1, // add x1, sp, #16
            0x6b02_003f, // cmp w1, w2
            0xf240_1c41, // ands x1, x2, #0xff
            0x8ae3_1c41, // bic x1, x2, x3, ror #7
            0xd2a2_4681, // movz x1, #0x1234, lsl #16
            0xf28a_cf01, // movk x1, #0x5678
            0xd343_1c41, // ubfx x1, x2, #3, #5
            0xb37c_1c41, // bfi x1, x2, #4, #8
            0xdac0_0c41, // rev x1, x2
            0xdac0_1041, // clz x1, x2
            0x9a83_1041, // csel x1, x2, x3, ne
            0xfa43_8824, // ccmp x1, #3, #4, hi
            0x93c3_2441, // extr x1, x2, x3, #9
            0x9ac3_4c41, // crc32x w1, w2, x3
        ],
    ),
    (
        "multiplication",
        &[
            0x9b03_7c41, // mul x1, x2, x3
            0x9b03_9041, // msub x1, x2, x3, x4
            0x9bc3_7c41, // umulh x1, x2, x3
            0x9b23_1041, // smaddl x1, w2, w3, x4
            0x9ac3_0c41, // sdiv x1, x2, x3
        ],
    ),
    (
        "loads and stores",
        &[
            0xf940_0441, // ldr x1, [x2, #8]
            0xf800_8441, // str x1, [x2], #8
            0x3863_6841, // ldrb w1, [x2, x3]
            0x7800_6c41, // strh w1, [x2, #6]!
            0xb980_0041, // ldrsw x1, [x2]
            0xa940_0c82, // ldp x2, x3, [x4]
            0xa9be_7bfd, // stp x29, x30, [sp, #-32]!
            0xa8c2_7bfd, // ldp x29, x30, [sp], #32
            0xf85f_d041, // ldur x1, [x2, #-3]
            0xc8df_fc41, // ldar x1, [x2]
            0x889f_fc41, // stlr w1, [x2]
            0xf840_0841, // ldtr x1, [x2]
            0xf980_0020, // prfm pldl1keep, [x1]
        ],
    ),
    (
        "literals and addresses",
        &[
            0x1000_0201, // adr x1, .+64
            0x30ff_ffe1, // adr x1, .-3
            0x9000_0001, // adrp x1, .
            0x9000_0002, // adrp x2, .+0x10000
            0x5800_0203, // ldr x3, .+64
            0x1800_0203, // ldr w3, .+64
            0x98ff_fe03, // ldrsw x3, .-64
            0xd800_0200, // prfm pldl1keep, .+64
        ],
    ),
    (
        "branches",
        &[
            0x1400_0010, // b .+64
            0x9400_0010, // bl .+64
            0x97ff_fff0, // bl .-64
            0x5400_0200, // b.eq .+64
            0x5400_0201, // b.ne .+64
            0x54ff_ff02, // b.cs .-32
            0x5400_0084, // b.mi .+16
            0x5400_0086, // b.vs .+16
            0x5400_0088, // b.hi .+16
            0x5400_008a, // b.ge .+16
            0x5400_008c, // b.gt .+16
            0x5400_008e, // b.al .+16
            0xb400_0201, // cbz x1, .+64
            0x35ff_fe01, // cbnz w1, .-64
            0xb608_0201, // tbz x1, #33, .+64
            0x371f_fe01, // tbnz w1, #3, .-64
            0xd61f_0060, // br x3
            0xd63f_0080, // blr x4
            0xd63f_03c0, // blr x30
            0xd65f_03c0, // ret
            0xd65f_00a0, // ret x5
        ],
    ),
    (
        "exclusive",
        &[
            0xc85f_7c41, // ldxr x1, [x2]
            0xc801_7c62, // stxr w1, x2, [x3]
            0xc87f_8c82, // ldaxp x2, x3, [x4]
            0x0801_fc62, // stlxrb w1, w2, [x3]
            0xd503_3f5f, // clrex
        ],
    ),
    (
        "hints and barriers",
        &[
            0xd503_201f, // nop
            0xd503_3bbf, // dmb ish
            0xd503_3fdf, // isb
            0xd503_203f, // yield
            0xd503_245f, // hint #34
            0xd503_233f, // hint #25
        ],
    ),
    (
        "floating point and SIMD",
        &[
            0x1e63_2841, // fadd d1, d2, d3
            0xfd40_0441, // ldr d1, [x2, #8]
            0x3cc1_0441, // ldr q1, [x2], #16
            0xad01_2428, // stp q8, q9, [x1, #32]
            0x9e66_0061, // fmov x1, d3
            0x9e67_0083, // fmov d3, x4
            0x1e78_0022, // fcvtzs w2, d1
            0x1e62_2020, // fcmp d1, d2
            0x4cdf_a820, // ld1 {v0.4s, v1.4s}, [x1], #32
            0x4ea3_8441, // add v1.4s, v2.4s, v3.4s
            0x0d00_0c40, // st1 {v0.b}[3], [x2]
            0x1e63_ac41, // fcsel d1, d2, d3, ge
        ],
    ),
];
