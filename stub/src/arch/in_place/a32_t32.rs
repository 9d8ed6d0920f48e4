//! The A32 and T32 part of `in_place`: classes of instructions, random instructions, and the
//! kernel's register sets (`struct pt_regs`, `struct user_vfp`).

use super::in_place::{Random, get, put};
use super::unpredictable;

/// Size of a register, in bytes.
pub(super) const WORD: usize = 4;
pub(super) const PC: usize = 15;
pub(super) const SP: usize = 13;
pub(super) const FLAGS: usize = 16;
/// Note type and size of NT_PRSTATUS.
pub(super) const GENERAL: (u32, usize) = (1, 18 * 4);
/// Note type and size of NT_ARM_VFP.
pub(super) const VECTOR: (u32, usize) = (0x400, 32 * 8 + 4);
/// Registers that an instruction may use.
pub(super) const FREE: [usize; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14];
/// N, Z, C, V, Q, and GE.
pub(super) const STATUS: u64 = 0xf80f_0000;
/// None of the flags belongs to the kernel.
pub(super) const KERNELS: u64 = 0;
/// Undefined in A32. In T32 the lower halfword is undefined, and the upper one begins a call to a
/// distant address.
pub(super) const FILL: u32 = 0xf7f0_def1;

const THUMB: u64 = 1 << 5;
const IT: u64 = 0x0600_fc00;

/// An instruction under test.
#[derive(Debug)]
pub(super) struct Instruction {
    pub(super) code: Vec<u8>,
    pub(super) kind: usize,
    /// 2 for a halfword address, which matters to instructions that read the program counter.
    pub(super) offset: u64,
}

impl Instruction {
    fn a32(code: u32) -> Instruction {
        Instruction {
            code: code.to_le_bytes().to_vec(),
            kind: 4,
            offset: 0,
        }
    }

    fn t32(code: &[u16], offset: u64) -> Instruction {
        Instruction {
            code: code.iter().flat_map(|half| half.to_le_bytes()).collect(),
            kind: code.len() + 1,
            offset,
        }
    }

    /// Traps after the instruction.
    pub(super) fn behind(&self) -> Vec<u8> {
        if self.kind == 4 {
            0xe7f0_01f0_u32.to_le_bytes().to_vec()
        } else {
            0xde01_u16.to_le_bytes().repeat(3)
        }
    }

    /// The flags, with the instruction set, and sometimes in an IT block.
    pub(super) fn mode(&self, flags: u64, random: &mut Random) -> u64 {
        let flags = flags & !(THUMB | IT);
        if self.kind == 4 {
            return flags;
        }
        let first = u16::from_le_bytes([self.code[0], self.code[1]]);
        // Conditional branches, CBZ and IT itself may not be in a block; other branches only at its
        // end.
        let alone = matches!(
            first >> 8,
            0xb1 | 0xb3 | 0xb9 | 0xbb | 0xbe | 0xbf | 0xd0..=0xdf
        ) || first >> 11 == 0b11110
            && self.code.get(3).is_some_and(|high| high & 0xd0 == 0x80);
        let state = match random.below(6) {
            0 if !alone => random.below(14) << 4 | 8,
            _ => 0,
        };
        flags | THUMB | (state & 0xfc) << 8 | (state & 3) << 25
    }
}

/// Prevents the kernel from repeating a system call.
pub(super) fn not_in_a_call(general: &mut [u8]) {
    put(general, 17, u64::MAX);
}

pub(super) fn shown(general: &[u8]) -> String {
    let words: Vec<String> = (0..17).map(|n| format!("{:x}", get(general, n))).collect();
    words.join(" ")
}

pub(super) fn classes() -> Vec<(String, Vec<Instruction>)> {
    let a32 = A32.iter().map(|(class, codes)| {
        let instructions = codes.iter().map(|code| Instruction::a32(*code));
        (format!("a32 {class}"), instructions.collect())
    });
    let t32 = T32.iter().map(|(class, codes)| {
        let twice = |code: &&[u16]| [0, 2].map(|offset| Instruction::t32(code, offset));
        (
            format!("t32 {class}"),
            codes.iter().flat_map(twice).collect(),
        )
    });
    a32.chain(t32).collect()
}

/// A random instruction that has the same effect each time, and leaves the test process in a state
/// that the test can restore.
pub(super) fn random(random: &mut Random) -> Option<Instruction> {
    if random.below(2) == 0 {
        let mut code = random.word();
        if random.below(4) != 0 {
            code = code & 0x0fff_ffff | 0xe << 28;
        }
        return is_repeatable_a32(code).then(|| Instruction::a32(code));
    }
    let offset = 2 * random.below(2);
    let (mut first, second) = (random.word() as u16, random.word() as u16);
    if random.below(2) == 0 {
        // Two halfwords: the first begins with 111xx, but not with 11100.
        first = [0xe800, 0xf000, 0xf800][random.below(3) as usize] | first & 0x7ff;
    }
    if first >> 11 > 0b11100 {
        is_repeatable_t32(first, second).then(|| Instruction::t32(&[first, second], offset))
    } else {
        is_repeatable_t16(first).then(|| Instruction::t32(&[first], offset))
    }
}

/// Whether an A32 instruction is repeatable. Excludes UNPREDICTABLE instructions, coprocessors 14
/// and 15, which have counters, SETEND, MSR to more than the flags, and branches to themselves.
fn is_repeatable_a32(code: u32) -> bool {
    let coprocessor = code >> 26 & 3 == 3 && code >> 8 & 14 == 14;
    let set_end = code & 0xffff_fdff == 0xf101_0000;
    let msr = code & 0x0fb0_f000 == 0x0320_f000 || code & 0x0fb0_fff0 == 0x0120_f000;
    let to_flags = matches!(code >> 16 & 15, 4 | 8 | 12);
    let to_itself = code & 0x0eff_ffff == 0x0aff_fffe;
    !(coprocessor || set_end || msr && !to_flags || to_itself || unpredictable::a32(code))
}

fn is_repeatable_t32(first: u16, second: u16) -> bool {
    let coprocessor = first & 0xec00 == 0xec00 && second >> 8 & 14 == 14;
    let msr = first & 0xffe0 == 0xf380 && second & 0xd000 == 0x8000;
    let to_flags = matches!(second >> 8 & 15, 4 | 8 | 12);
    // ENTERX, LEAVEX
    let thumb_ee = first == 0xf3bf && second & 0xf0e0 == 0x8000;
    !(coprocessor || msr && !to_flags || thumb_ee || unpredictable::t32(first, second))
}

fn is_repeatable_t16(first: u16) -> bool {
    // SETEND, CPS; BX and BLX with more than a register; branches to themselves
    first & 0xffe0 != 0xb640
        && !(first & 0xff00 == 0x4700 && first & 7 != 0)
        && first != 0xe7fe
        && first & 0xf0ff != 0xd0fe
}

// The text of each is the GNU assembler's.
const A32: &[(&str, &[u32])] = &[
    (
        "data processing",
        &[
            0xe3a0_0001, // mov r0, #1
            0xe092_1003, // adds r1, r2, r3
            0xe0d2_1413, // sbcs r1, r2, r3, lsl r4
            0xe066_51c7, // rsb r5, r6, r7, asr #3
            0xe151_0002, // cmp r1, r2
            0xe313_00ff, // tst r3, #0xff
            0xe1f0_1062, // mvns r1, r2, rrx
            0xe301_1234, // movw r1, #0x1234
            0xe345_1678, // movt r1, #0x5678
            0x1281_1001, // addne r1, r1, #1
            0x03a0_2007, // moveq r2, #7
            0xe7e4_11d2, // ubfx r1, r2, #3, #5
            0xe7cb_1212, // bfi r1, r2, #4, #8
            0xe6bf_1f32, // rev r1, r2
            0xe16f_1f12, // clz r1, r2
            0xe6a7_1012, // ssat r1, #8, r2
            0xe662_1f93, // uqadd8 r1, r2, r3
            0xe682_1fb3, // sel r1, r2, r3
        ],
    ),
    (
        "multiplication",
        &[
            0xe001_0392, // mul r1, r2, r3
            0xe031_4392, // mlas r1, r2, r3, r4
            0xe082_1493, // umull r1, r2, r3, r4
            0xe0e2_1493, // smlal r1, r2, r3, r4
            0xe711_f312, // sdiv r1, r2, r3
            0xe161_03c2, // smulbt r1, r2, r3
        ],
    ),
    (
        "loads and stores",
        &[
            0xe592_1004, // ldr r1, [r2, #4]
            0xe482_1008, // str r1, [r2], #8
            0xe772_1003, // ldrb r1, [r2, -r3]!
            0xe1c2_10b6, // strh r1, [r2, #6]
            0xe1d2_10f2, // ldrsh r1, [r2, #2]
            0xe1c4_20d0, // ldrd r2, r3, [r4]
            0xe1e4_20f8, // strd r2, r3, [r4, #8]!
            0xe891_003c, // ldm r1, {r2-r5}
            0xe92d_4ff0, // stmdb sp!, {r4-r11, lr}
            0xe8bd_00f0, // pop {r4-r7}
            0xe52d_3004, // push {r3}
            0xe103_1092, // swp r1, r2, [r3]
            0xf5d1_f000, // pld [r1]
        ],
    ),
    (
        "loads of the program counter",
        &[
            0xe8bd_8010, // pop {r4, pc}
            0xe591_f008, // ldr pc, [r1, #8]
            0xe791_f102, // ldr pc, [r1, r2, lsl #2]
            0xe991_800c, // ldmib r1, {r2, r3, pc}
            0x18bd_8010, // popne {r4, pc}
        ],
    ),
    (
        "literals and addresses",
        &[
            0xe59f_3010, // ldr r3, [pc, #16]
            0xe51f_3010, // ldr r3, [pc, #-16]
            0xe28f_2c01, // add r2, pc, #256
            0xe24f_2004, // sub r2, pc, #4
            0xe08f_2002, // add r2, pc, r2
            0xe1a0_300f, // mov r3, pc
            0xe79f_3102, // ldr r3, [pc, r2, lsl #2]
            0x159f_3004, // ldrne r3, [pc, #4]
        ],
    ),
    (
        "branches",
        &[
            0xea00_000e, // b .+64
            0xeb00_000e, // bl .+64
            0xfa00_000e, // blx .+64
            0x0a00_000e, // beq .+64
            0x1a00_000e, // bne .+64
            0x2aff_fff6, // bcs .-32
            0x4a00_0002, // bmi .+16
            0x6a00_0002, // bvs .+16
            0x8a00_0002, // bhi .+16
            0xaa00_0002, // bge .+16
            0xca00_0002, // bgt .+16
            0xebff_ffee, // bl .-64
            0xe12f_ff13, // bx r3
            0xe12f_ff34, // blx r4
            0xe12f_ff1e, // bx lr
            0xe1a0_f00e, // mov pc, lr
            0xe08f_f103, // add pc, pc, r3, lsl #2
            0x012f_ff1e, // bxeq lr
            0xe241_f004, // sub pc, r1, #4
        ],
    ),
    (
        "exclusive",
        &[
            0xe192_1f9f, // ldrex r1, [r2]
            0xe183_1f92, // strex r1, r2, [r3]
            0xe1b4_2f9f, // ldrexd r2, r3, [r4]
            0xe1a4_1f92, // strexd r1, r2, r3, [r4]
            0xe1d2_1f9f, // ldrexb r1, [r2]
            0xf57f_f01f, // clrex
        ],
    ),
    (
        "hints, barriers, status",
        &[
            0xe320_f000, // nop
            0xf57f_f05b, // dmb ish
            0xf57f_f06f, // isb
            0xe320_f001, // yield
            0xe10f_1000, // mrs r1, cpsr
            0xe128_f001, // msr cpsr_f, r1
        ],
    ),
    (
        "floating point and SIMD",
        &[
            0xee32_1b03, // vadd.f64 d1, d2, d3
            0xed92_1b02, // vldr d1, [r2, #8]
            0xed21_8b08, // vstmdb r1!, {d8-d11}
            0xec52_1b13, // vmov r1, r2, d3
            0xee00_4a90, // vmov s1, r4
            0xeebd_1bc1, // vcvt.s32.f64 s2, d1
            0xeef1_fa10, // vmrs APSR_nzcv, fpscr
            0xf421_0a8d, // vld1.32 {d0, d1}, [r1]!
            0xf224_2846, // vadd.i32 q1, q2, q3
            0xf402_070f, // vst1.8 {d0}, [r2]
        ],
    ),
];

const T32: &[(&str, &[&[u16]])] = &[
    (
        "data processing",
        &[
            &[0x2001],         // movs r0, #1
            &[0x18d1],         // adds r1, r2, r3
            &[0x3907],         // subs r1, #7
            &[0x4291],         // cmp r1, r2
            &[0x4599],         // cmp r9, r3
            &[0x00d1],         // lsls r1, r2, #3
            &[0x4698],         // mov r8, r3
            &[0x4449],         // add r1, r9
            &[0xb004],         // add sp, #16
            &[0xaa08],         // add r2, sp, #32
            &[0xeb72, 0x0183], // sbcs.w r1, r2, r3, lsl #2
            &[0xf241, 0x2134], // movw r1, #0x1234
            &[0xf2c5, 0x6178], // movt r1, #0x5678
            &[0xf3c2, 0x01c4], // ubfx r1, r2, #3, #5
            &[0xf362, 0x110b], // bfi r1, r2, #4, #8
            &[0xba11],         // rev r1, r2
            &[0xfab2, 0xf182], // clz r1, r2
            &[0xb2d1],         // uxtb r1, r2
            &[0xf302, 0x0107], // ssat r1, #8, r2
            &[0xfaa2, 0xf183], // sel r1, r2, r3
            &[0xf1bd, 0x0d40], // subs.w sp, sp, #64
        ],
    ),
    (
        "multiplication",
        &[
            &[0x4351],         // muls r1, r2, r1
            &[0xfb02, 0x4103], // mla r1, r2, r3, r4
            &[0xfba3, 0x1204], // umull r1, r2, r3, r4
            &[0xfb92, 0xf1f3], // sdiv r1, r2, r3
            &[0xfb12, 0xf113], // smulbt r1, r2, r3
        ],
    ),
    (
        "loads and stores",
        &[
            &[0x6851],         // ldr r1, [r2, #4]
            &[0x9102],         // str r1, [sp, #8]
            &[0x5cd1],         // ldrb r1, [r2, r3]
            &[0x80d1],         // strh r1, [r2, #6]
            &[0x5ed1],         // ldrsh r1, [r2, r3]
            &[0xf852, 0x1b04], // ldr.w r1, [r2], #4
            &[0xe9d4, 0x2300], // ldrd r2, r3, [r4]
            &[0xe9e4, 0x2302], // strd r2, r3, [r4, #8]!
            &[0xc93c],         // ldm r1!, {r2-r5}
            &[0xb5f0],         // push {r4-r7, lr}
            &[0xe92d, 0x4ff0], // push.w {r4-r11, lr}
            &[0xbcf0],         // pop {r4-r7}
            &[0xe921, 0x010c], // stmdb r1!, {r2, r3, r8}
            &[0xf852, 0x1e00], // ldrt r1, [r2]
            &[0xf891, 0xf000], // pld [r1]
        ],
    ),
    (
        "loads of the program counter",
        &[
            &[0xbd10],         // pop {r4, pc}
            &[0xe8bd, 0x8110], // pop.w {r4, r8, pc}
            &[0xf8d1, 0xf008], // ldr.w pc, [r1, #8]
            &[0xf851, 0xf022], // ldr.w pc, [r1, r2, lsl #2]
        ],
    ),
    (
        "literals and addresses",
        &[
            &[0x4b04],         // ldr r3, [pc, #16]
            &[0xf8df, 0x3010], // ldr.w r3, [pc, #16]
            &[0xf85f, 0x3010], // ldr.w r3, [pc, #-16]
            &[0xa204],         // adr r2, .+20
            &[0xf2af, 0x0218], // adr.w r2, .-20
            &[0xf20f, 0x0214], // adr.w r2, .+24
            &[0x447a],         // add r2, pc
            &[0x467b],         // mov r3, pc
        ],
    ),
    (
        "branches",
        &[
            &[0xe01e],         // b .+64
            &[0xf000, 0xb81e], // b.w .+64
            &[0xf000, 0xf81e], // bl .+64
            &[0xf000, 0xe81e], // blx .+64
            &[0xd01e],         // beq .+64
            &[0xd11e],         // bne .+64
            &[0xd2ee],         // bcs .-32
            &[0xd406],         // bmi .+16
            &[0xd606],         // bvs .+16
            &[0xd806],         // bhi .+16
            &[0xda06],         // bge .+16
            &[0xdc06],         // bgt .+16
            &[0xf7ff, 0xffde], // bl .-64
            &[0xf040, 0x803e], // bne.w .+128
            &[0x4718],         // bx r3
            &[0x47a0],         // blx r4
            &[0x4770],         // bx lr
            &[0x46f7],         // mov pc, lr
            &[0xb141],         // cbz r1, .+20
            &[0xb942],         // cbnz r2, .+20
            &[0xe8d1, 0xf002], // tbb [r1, r2]
            &[0xe8d1, 0xf012], // tbh [r1, r2, lsl #1]
            &[0xe8df, 0xf002], // tbb [pc, r2]
        ],
    ),
    (
        "IT",
        &[
            &[0xbf08], // it eq
            &[0xbf14], // ite ne
            &[0xbfc1], // itttt gt
            &[0xbf95], // itete ls
        ],
    ),
    (
        "exclusive",
        &[
            &[0xe852, 0x1f00], // ldrex r1, [r2]
            &[0xe843, 0x2100], // strex r1, r2, [r3]
            &[0xe8d4, 0x237f], // ldrexd r2, r3, [r4]
            &[0xe8c4, 0x2371], // strexd r1, r2, r3, [r4]
            &[0xe8d2, 0x1f4f], // ldrexb r1, [r2]
            &[0xf3bf, 0x8f2f], // clrex
        ],
    ),
    (
        "hints, barriers, status",
        &[
            &[0xbf00],         // nop
            &[0xf3af, 0x8000], // nop.w
            &[0xf3bf, 0x8f5b], // dmb ish
            &[0xf3bf, 0x8f6f], // isb
            &[0xbf10],         // yield
            &[0xf3ef, 0x8100], // mrs r1, cpsr
            &[0xf381, 0x8800], // msr cpsr_f, r1
        ],
    ),
    (
        "floating point and SIMD",
        &[
            &[0xee32, 0x1b03], // vadd.f64 d1, d2, d3
            &[0xed92, 0x1b02], // vldr d1, [r2, #8]
            &[0xed9f, 0x1b02], // vldr d1, [pc, #8]
            &[0xed21, 0x8b08], // vstmdb r1!, {d8-d11}
            &[0xec52, 0x1b13], // vmov r1, r2, d3
            &[0xee00, 0x4a90], // vmov s1, r4
            &[0xeef1, 0xfa10], // vmrs APSR_nzcv, fpscr
            &[0xf921, 0x0a8d], // vld1.32 {d0, d1}, [r1]!
            &[0xef24, 0x2846], // vadd.i32 q1, q2, q3
        ],
    ),
];
