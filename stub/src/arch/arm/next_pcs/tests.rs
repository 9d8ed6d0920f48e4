//! Every class of instruction, with encodings from GNU as. (The tests on the board step through
//! programs and compare with the execution in an emulator.)

use std::collections::BTreeMap;

use super::*;

#[derive(Clone, Copy)]
enum To {
    A(u64),
    T(u64),
}
use To::{A, T};

/// Z and C are set.
const FLAGS: u32 = 0x6000_0010;
const THUMB: u32 = 1 << 5;

/// Outside of `code`, a word's value is its address plus 0x100000.
fn memory(code: &BTreeMap<u64, u8>) -> impl Fn(u64, &mut [u8]) -> bool {
    |address, into| {
        for (at, byte) in (address..).zip(into) {
            let word = (at as u32 & !3) + 0x10_0000;
            *byte = *code
                .get(&at)
                .unwrap_or(&word.to_le_bytes()[at as usize % 4]);
        }
        true
    }
}

fn registers(cpsr: u32) -> Registers {
    let mut r = [0; 16];
    (r[1], r[2], r[3], r[4], r[5]) = (0x2000, 0x3001, 1, 0x4000, !0x2000);
    (r[13], r[14], r[15]) = (0x5000, 0x6001, 0x1000);
    Registers { r, cpsr }
}

/// The next places after halfwords of T32 or words of A32 at 0x1000.
fn next(code: &[u8], registers: &Registers) -> Vec<Place> {
    let code: BTreeMap<u64, u8> = (0x1000..).zip(code.iter().copied()).collect();
    next_pcs(registers, &memory(&code))
}

fn t32(halves: &[u16]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}

fn a32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn in_block(it: u32, cpsr: u32) -> Registers {
    registers(cpsr | THUMB | (it & 0xfc) << 8 | (it & 3) << 25)
}

#[rustfmt::skip]
const A32: &[(&str, u32, To)] = &[
    ("b .+0x40", 0xea00_000e, A(0x1040)),
    ("bl .-0x40", 0xebff_ffee, A(0xfc0)),
    ("blx .+0x42", 0xfb00_000e, T(0x1042)),
    ("beq .+8", 0x0a00_0000, A(0x1008)),
    ("bne .+8", 0x1a00_0000, A(0x1004)),
    ("bx r1", 0xe12f_ff11, A(0x2000)),
    ("bx r2", 0xe12f_ff12, T(0x3000)),
    ("blx r2", 0xe12f_ff32, T(0x3000)),
    ("bxne r2", 0x112f_ff12, A(0x1004)),
    ("mov pc, r1", 0xe1a0_f001, A(0x2000)),
    ("mov pc, r2", 0xe1a0_f002, T(0x3000)),
    ("add pc, pc, r3, lsl #2", 0xe08f_f103, A(0x100c)),
    ("sub pc, r1, #8", 0xe241_f008, A(0x1ff8)),
    ("rsb pc, r0, r1", 0xe060_f001, A(0x2000)),
    ("adc pc, r1, #3", 0xe2a1_f003, A(0x2004)),
    ("sbc pc, r1, #4", 0xe2c1_f004, A(0x1ffc)),
    ("rsc pc, r0, r1", 0xe0e0_f001, A(0x2000)),
    ("and pc, r1, r1", 0xe001_f001, A(0x2000)),
    ("orr pc, r1, #0x10", 0xe381_f010, A(0x2010)),
    ("eor pc, r1, #0x10", 0xe221_f010, A(0x2010)),
    ("bic pc, r2, #1", 0xe3c2_f001, A(0x3000)),
    ("mvn pc, r5", 0xe1e0_f005, A(0x2000)),
    ("mov pc, r1, lsl #1", 0xe1a0_f081, A(0x4000)),
    ("mov pc, r1, rrx", 0xe1a0_f061, A(0x80001000)),
    ("ldr pc, [r4]", 0xe594_f000, A(0x104000)),
    ("ldr pc, [r4, #-4]", 0xe514_f004, A(0x103ffc)),
    ("ldr pc, [r4], #4", 0xe494_f004, A(0x104000)),
    ("ldr pc, [r4, r3, lsl #2]!", 0xe7b4_f103, A(0x104004)),
    ("ldr pc, [r4, -r3, lsl #2]", 0xe714_f103, A(0x103ffc)),
    ("ldr pc, [pc, #0xff8]", 0xe59f_fff8, A(0x102000)),
    ("ldmia sp!, {r0, pc}", 0xe8bd_8001, A(0x105004)),
    ("ldmib sp, {r0, pc}", 0xe99d_8001, A(0x105008)),
    ("ldmda sp, {r0, pc}", 0xe81d_8001, A(0x105000)),
    ("ldmdb sp, {r0, pc}", 0xe91d_8001, A(0x104ffc)),
    ("ldr r0, [r4]", 0xe594_0000, A(0x1004)),
    ("strh r0, [r4]", 0xe1c4_00b0, A(0x1004)),
    ("ldrd r0, r1, [r4]", 0xe1c4_00d0, A(0x1004)),
    ("mul r0, r1, r2", 0xe000_0291, A(0x1004)),
    ("cmp r0, #0", 0xe350_0000, A(0x1004)),
    ("movw r1, #5", 0xe300_1005, A(0x1004)),
    ("msr cpsr_f, r0", 0xe128_f000, A(0x1004)),
    ("clz r0, r1", 0xe16f_0f11, A(0x1004)),
    ("sxtb r0, r1", 0xe6af_0071, A(0x1004)),
    ("vldmia r4, {d0-d7}", 0xec94_0b10, A(0x1004)),
    ("svc 0", 0xef00_0000, A(0x1004)),
    ("ldrsh r0, [r4, #0xf]", 0xe1d4_00ff, A(0x1004)),
];

#[rustfmt::skip]
const T32: &[(&str, u32, To)] = &[
    ("b .+0x40", 0xe01e, T(0x1040)),
    ("b.w .-0x40", 0xf7ff_bfde, T(0xfc0)),
    ("beq .+8", 0xd002, T(0x1008)),
    ("bne .+8", 0xd102, T(0x1002)),
    ("beq.w .+0x4000", 0xf003_87fe, T(0x5000)),
    ("bne.w .+0x4000", 0xf043_87fe, T(0x1004)),
    ("bl .+0x100000", 0xf0ff_fffe, T(0x101000)),
    ("blx .+0x104", 0xf000_e880, A(0x1104)),
    ("bx r1", 0x4708, A(0x2000)),
    ("bx r2", 0x4710, T(0x3000)),
    ("blx r1", 0x4788, A(0x2000)),
    ("mov pc, r1", 0x468f, T(0x2000)),
    ("add pc, r1", 0x448f, T(0x3004)),
    ("cbz r0, .+0x20", 0xb170, T(0x1020)),
    ("cbnz r0, .+0x20", 0xb970, T(0x1002)),
    ("cbnz r3, .+0x60", 0xbb73, T(0x1060)),
    ("pop {r0, r1, pc}", 0xbd03, A(0x105008)),
    ("pop.w {r0, r8, pc}", 0xe8bd_8101, A(0x105008)),
    ("ldmia.w r4, {r0, pc}", 0xe894_8001, A(0x104004)),
    ("ldmdb r4, {r0, pc}", 0xe914_8001, A(0x103ffc)),
    ("ldr.w pc, [r4]", 0xf8d4_f000, A(0x104000)),
    ("ldr.w pc, [r4, #0x800]", 0xf8d4_f800, A(0x104800)),
    ("ldr.w pc, [r4, #-4]", 0xf854_fc04, A(0x103ffc)),
    ("ldr.w pc, [r4], #4", 0xf854_fb04, A(0x104000)),
    ("ldr.w pc, [r4, #4]!", 0xf854_ff04, A(0x104004)),
    ("ldr.w pc, [r4, r3, lsl #2]", 0xf854_f023, A(0x104004)),
    ("tbb [r4, r3]", 0xe8d4_f003, T(0x1084)),
    ("tbh [r4, r3, lsl #1]", 0xe8d4_f013, T(0x1024)),
    ("movs r0, #1", 0x2001, T(0x1002)),
    ("mov r8, r1", 0x4688, T(0x1002)),
    ("ldr.w r0, [r4]", 0xf8d4_0000, T(0x1004)),
    ("ldrsh.w r0, [r4]", 0xf9b4_0000, T(0x1004)),
    ("mrs r0, apsr", 0xf3ef_8000, T(0x1004)),
    ("vadd.i32 q0, q0, q0", 0xef20_0840, T(0x1004)),
    ("ldrd r0, r1, [r4]", 0xe9d4_0100, T(0x1004)),
    ("svc 0", 0xdf00, T(0x1002)),
    ("nop", 0xbf00, T(0x1002)),
    ("pop {r0}", 0xbc01, T(0x1002)),
    ("add.w r0, r1, r2", 0xeb01_0002, T(0x1004)),
    ("dmb", 0xf3bf_8f5f, T(0x1004)),
];

fn expected(to: To) -> Vec<Place> {
    vec![match to {
        A(at) => (at, 4),
        T(at) => (at, 2),
    }]
}

#[test]
fn every_class_of_a32() {
    for (text, code, to) in A32 {
        let found = next(&code.to_le_bytes(), &registers(FLAGS));
        assert_eq!(found, expected(*to), "{text}: {found:x?}");
    }
}

#[test]
fn every_class_of_t32() {
    for (text, code, to) in T32 {
        let halves = [(code >> 16) as u16, *code as u16];
        let code = if halves[0] == 0 {
            t32(&halves[1..])
        } else {
            t32(&halves)
        };
        let found = next(&code, &registers(FLAGS | THUMB));
        assert_eq!(found, expected(*to), "{text}: {found:x?}");
    }
}

#[test]
fn conditions() {
    // beq, bne, bcs, ... ble, b to 0x1010
    let taken = |cpsr: u32| -> u32 {
        (0..15_u32)
            .filter(|condition| {
                let code = condition << 28 | 0x0a00_0002;
                next(&code.to_le_bytes(), &registers(cpsr)) == [(0x1010, 4)]
            })
            .map(|condition| 1 << condition)
            .sum()
    };
    let (n, z, c, v) = (1 << 31, 1 << 30, 1 << 29, 1 << 28);
    // From the lowest bit: eq ne cs cc mi pl vs vc hi ls ge lt gt le al.
    assert_eq!(taken(0), 0b101_0110_1010_1010);
    assert_eq!(taken(z), 0b110_0110_1010_1001);
    assert_eq!(taken(c), 0b101_0101_1010_0110);
    assert_eq!(taken(n), 0b110_1010_1001_1010);
    assert_eq!(taken(n | v), 0b101_0110_0101_1010);
    assert_eq!(taken(n | z | c | v), 0b110_0110_0101_0101);
}

#[test]
fn it_blocks_skip_failing_instructions() {
    // ittee eq; addeq r1, r0, #1; addeq.w r1, r0, #2; addne r1, r0, #3; addne r1, r0, #4; nop
    let code = t32(&[0xbf07, 0x1c41, 0xf100, 0x0102, 0x1cc1, 0x1d01, 0xbf00]);
    assert_eq!(next(&code, &registers(FLAGS | THUMB)), [(0x1002, 2)]);
    assert_eq!(next(&code, &registers(THUMB)), [(0x1008, 2)]);
    // Inside, at the first of the four, which may change the flags.
    let mut inside = in_block(0x07, FLAGS);
    inside.r[15] = 0x1002;
    assert_eq!(next(&code, &inside), [(0x1004, 3), (0x1008, 2)]);
    // At the third, which fails, and so does the last.
    let mut inside = in_block(0x1c, FLAGS);
    inside.r[15] = 0x1008;
    assert_eq!(next(&code, &inside), [(0x100c, 2)]);
    // it eq; bxeq r2: a branch in a block
    let branch = t32(&[0x4710]);
    assert_eq!(next(&branch, &in_block(0x08, FLAGS)), [(0x3000, 2)]);
    assert_eq!(next(&branch, &in_block(0x08, 0x10)), [(0x1002, 2)]);
}

#[test]
fn exclusive_sequences_are_one_instruction() {
    // 1: ldrex r1, [r8]; add r1, r1, #1; strex r2, r1, [r8]; cmp r2, #0; bne 1b
    let plain = a32(&[
        0xe198_1f9f,
        0xe281_1001,
        0xe188_2f91,
        0xe352_0000,
        0x1aff_fffa,
    ]);
    assert_eq!(next(&plain, &registers(FLAGS)), [(0x100c, 4)]);
    // 1: ldrexd r2, [r8]; cmp r2, #0; beq 0x1100; strexd r1, r2, [r8]
    let exit = a32(&[0xe1b8_2f9f, 0xe352_0000, 0x0a00_003c, 0xe1a8_1f92]);
    assert_eq!(next(&exit, &registers(FLAGS)), [(0x1010, 4), (0x1100, 4)]);
    // ldrex r1, [r8]; cmp r1, #77; itt ne; addne r1, #1; strexne r2, r1, [r8]
    let block = t32(&[
        0xe858, 0x1f00, 0x294d, 0xbf1c, 0x3101, 0xe848, 0x1200, 0xbf00,
    ]);
    assert_eq!(next(&block, &registers(FLAGS | THUMB)), [(0x100e, 2)]);
    // ldrexh r1, [r8]; cbz r1, 0x1020; strexh r2, r1, [r8]
    let compare = t32(&[0xe8d8, 0x1f5f, 0xb161, 0xe8c8, 0x1f52, 0xbf00]);
    assert_eq!(
        next(&compare, &registers(FLAGS | THUMB)),
        [(0x100a, 2), (0x1020, 2)]
    );
    // ldrex alone
    let alone = a32(&[0xe198_1f9f, 0xe12f_ff1e]);
    assert_eq!(next(&alone, &registers(FLAGS)), [(0x1004, 4)]);
}

#[test]
fn a_kernel_helper_is_one_step() {
    let mut registers = registers(FLAGS);
    registers.r[1] = 0xffff_0fe0;
    // mov pc, r1 (returns to lr); blx r1; and inside the page
    assert_eq!(next(&a32(&[0xe1a0_f001]), &registers), [(0x6000, 2)]);
    assert_eq!(next(&a32(&[0xe12f_ff31]), &registers), [(0x1004, 4)]);
    registers.r[15] = 0xffff_0fe4;
    assert_eq!(next(&[], &registers), [(0x6000, 2)]);
}

#[test]
fn sigreturn_goes_to_the_pc_of_the_frame() {
    // A word's value is its address plus 0x100000: pc and CPSR, in the frames of rt_sigreturn and
    // sigreturn
    let mut registers = registers(FLAGS);
    registers.r[7] = 173;
    let at = 0x10_5000 + 128 + 20 + 12 + 60;
    assert_eq!((at + 4) & 1 << 5, 1 << 5, "the CPSR says T32");
    assert_eq!(next(&a32(&[0xef00_0000]), &registers), [(at, 2)]);
    registers.r[7] = 119;
    assert_eq!(
        next(&a32(&[0xef00_0000]), &registers),
        [(0x10_5000 + 20 + 12 + 60, 2)]
    );
}

#[test]
fn unreadable_code_has_no_successor() {
    let none = |_: u64, _: &mut [u8]| false;
    assert_eq!(next_pcs(&registers(FLAGS), &none), []);
    assert_eq!(next_pcs(&registers(FLAGS | THUMB), &none), []);
}
