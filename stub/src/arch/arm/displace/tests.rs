//! Single instructions. Their encodings are the GNU assembler's for the text beside them.

use super::*;

const A32: u32 = 0x10;
const T32: u32 = 0x30;
const PC: u32 = 0x1_0000;

struct Words;

impl Memory for Words {
    /// Every word holds its own address plus 0x100.
    fn load(&self, address: u64, into: &mut [u8]) -> bool {
        into.copy_from_slice(&(address as u32 + 0x100).to_le_bytes()[..into.len()]);
        true
    }

    fn store(&self, _: u64, _: &[u8]) -> bool {
        false
    }
}

/// r0 to r14 hold 0x1000 times their number plus one.
fn general(cpsr: u32) -> Vec<u8> {
    let mut words: Vec<u32> = (0..16).map(|n| 0x1000 * (n + 1)).collect();
    words[15] = PC;
    words.push(cpsr);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(general: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(*general[4 * index..].first_chunk().unwrap())
}

fn run(code: &[u8], cpsr: u32) -> Option<Vec<u8>> {
    let mut state = general(cpsr);
    emulate(code, &mut state, &Words).then_some(state)
}

fn a32(code: u32) -> Vec<u8> {
    run(&code.to_le_bytes(), A32).unwrap_or_else(|| panic!("{code:#x}"))
}

fn t32(halves: &[u16]) -> Vec<u8> {
    let code: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    run(&code, T32).unwrap_or_else(|| panic!("{halves:x?}"))
}

#[test]
fn a32_literals_and_addresses() {
    for (code, register, value) in [
        (0xe59f_3010, 3, PC + 8 + 0x10 + 0x100), // ldr r3, [pc, #16]
        (0xe51f_3010, 3, PC + 8 - 0x10 + 0x100), // ldr r3, [pc, #-16]
        (0xe28f_2c01, 2, PC + 8 + 0x100),        // add r2, pc, #256
        (0xe24f_2004, 2, PC + 4),                // sub r2, pc, #4
        (0xe08f_2002, 2, PC + 8 + 0x3000),       // add r2, pc, r2
        (0xe082_200f, 2, PC + 8 + 0x3000),       // add r2, r2, pc
        (0xe1a0_e00f, 14, PC + 8),               // mov lr, pc
        (0xe79f_3102, 3, PC + 8 + 0xc000 + 0x100), // ldr r3, [pc, r2, lsl #2]
    ] {
        let after = a32(code);
        assert_eq!(word(&after, register), value, "{code:#x}");
        assert_eq!(word(&after, 15), PC + 4);
    }
}

#[test]
fn a32_branches() {
    for (code, to, lr, thumb) in [
        (0xea00_0002, PC + 0x10, 0xf000, false),         // b .+16
        (0xebff_fffe, PC, PC + 4, false),                // bl .
        (0xfa00_0000, PC + 8, PC + 4, true),             // blx .+8
        (0xe12f_ff33, 0x4000, PC + 4, false),            // blx r3
        (0x0a00_0002, PC + 4, 0xf000, false),            // beq .+16, not taken
        (0x03a0_0001, PC + 4, 0xf000, false),            // moveq r0, #1, not executed
        (0xe08f_f103, PC + 8 + 0x1_0000, 0xf000, false), // add pc, pc, r3, lsl #2
    ] {
        let after = a32(code);
        assert_eq!(word(&after, 15), to, "{code:#x}");
        assert_eq!(word(&after, 14), lr, "{code:#x}");
        assert_eq!(word(&after, 16) & 0x20 != 0, thumb, "{code:#x}");
        assert_eq!(word(&after, 0), 0x1000);
    }
}

#[test]
fn t32_literals_and_branches() {
    for (halves, register, value) in [
        (&[0x4b02][..], 3, PC + 4 + 8 + 0x100), // ldr r3, [pc, #8]
        (&[0xa102], 1, PC + 4 + 8),             // adr r1, .+12
        (&[0x447b], 3, PC + 4 + 0x4000),        // add r3, pc
        (&[0xf8df, 0xc010], 12, PC + 4 + 0x10 + 0x100), // ldr.w ip, [pc, #16]
        (&[0xf20f, 0x1c02], 12, PC + 4 + 0x102), // addw ip, pc, #258
        (&[0xf2af, 0x0c02], 12, PC + 2),        // subw ip, pc, #2
    ] {
        let after = t32(halves);
        assert_eq!(word(&after, register), value, "{halves:x?}");
        assert_eq!(word(&after, 15), PC + 2 * halves.len() as u32);
    }
    for (halves, to, lr, thumb) in [
        (&[0xe7fe][..], PC, 0xf000, true),          // b .
        (&[0xd0fe], PC + 2, 0xf000, true),          // beq ., not taken
        (&[0xb90b], PC + 6, 0xf000, true),          // cbnz r3, .+6
        (&[0xb10b], PC + 2, 0xf000, true),          // cbz r3, not taken
        (&[0xf000, 0xf802], PC + 8, PC + 5, true),  // bl .+8
        (&[0xf000, 0xe802], PC + 8, PC + 5, false), // blx .+8
        (&[0x4798], 0x4000, PC + 3, false),         // blx r3
        (&[0x4770], 0xf000, 0xf000, false),         // bx lr
    ] {
        let after = t32(halves);
        assert_eq!(word(&after, 15), to, "{halves:x?}");
        assert_eq!(word(&after, 14), lr, "{halves:x?}");
        assert_eq!(word(&after, 16) & 0x20 != 0, thumb, "{halves:x?}");
    }
}

#[test]
fn it_blocks() {
    // itte ne: 1011 1111 0001 1010
    let begun = t32(&[0xbf1a]);
    assert_eq!(word(&begun, 16), T32 | 0x1800 | 2 << 25);
    assert!(!may_displace(&begun));
    // Z is set: the instruction is not executed, and the IT state advances.
    let cpsr = word(&begun, 16) | 1 << 30;
    let after = run(&0x2001_u16.to_le_bytes(), cpsr).unwrap(); // movne r0, #1
    assert_eq!(word(&after, 0), 0x1000);
    assert_eq!(word(&after, 15), PC + 2);
    assert_eq!(word(&after, 16), T32 | 1 << 30 | 0x1400);
    assert!(run(&0x2001_u16.to_le_bytes(), word(&begun, 16)).is_none());
}

#[test]
fn copies_of_a32() {
    let free = |code: u32| displace(&code.to_le_bytes(), PC.into(), 0x2_0000, 4);
    let copy = free(0xe92d_4ff0).expect("push"); // push {r4-r11, lr}
    let words: Vec<u32> = copy.code.chunks_exact(4).map(|w| word(w, 0)).collect();
    assert_eq!(words, [0xe92d_4ff0, 0xe51f_f004, PC + 4]);
    for (code, copied) in [
        (0xe8bd_8ff0, true),  // pop {r4-r11, pc}
        (0xe52d_e004, true),  // push {lr}
        (0xe24d_d008, true),  // sub sp, sp, #8
        (0xe590_f000, true),  // ldr pc, [r0]
        (0xe195_1f9f, true),  // ldrex r1, [r5]
        (0xee1d_0f70, true),  // mrc 15, 0, r0, cr13, cr0, {3}
        (0xed2d_8b02, true),  // vpush {d8}
        (0xe6ef_0070, true),  // uxtb r0, r0
        (0xe300_0001, true),  // movw r0, #1
        (0xe92d_d800, false), // push {fp, ip, lr, pc}
        (0xe59f_0000, false), // ldr r0, [pc]
        (0xed9f_0b02, false), // vldr d0, [pc, #8]
        (0xe1cf_00d4, false), // ldrd r0, [pc, #4]
        (0xe08f_f103, false), // add pc, pc, r3, lsl #2
        (0xef00_0000, false), // svc 0
        (0xe120_0070, false), // bkpt
        (0xe7f0_00f0, false), // udf
    ] {
        assert_eq!(free(code).is_some(), copied, "{code:#x}");
    }
}

#[test]
fn copies_of_t32() {
    let free = |halves: &[u16]| {
        let code: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        displace(&code, PC.into(), 0x2_0000, 2)
    };
    let copy = free(&[0xb5f0]).expect("push"); // push {r4-r7, lr}
    assert_eq!(copy.length, 2);
    assert_eq!(word(&copy.code, 0), 0xbf00_b5f0);
    assert_eq!(word(&copy.code, 1), 0xf000_f8df);
    assert_eq!(word(&copy.code, 2), PC + 3);
    for (halves, copied) in [
        (&[0xe92d, 0x4ff0][..], true), // push.w {r4-r11, lr}
        (&[0xbdf0], true),             // pop {r4-r7, pc}
        (&[0xb083], true),             // sub sp, #12
        (&[0x4618], true),             // mov r0, r3
        (&[0xf1ad, 0x0d08], true),     // sub.w sp, sp, #8
        (&[0xf04f, 0x0000], true),     // mov.w r0, #0
        (&[0xea4f, 0x0000], true),     // mov.w r0, r0
        (&[0xee1d, 0x0f70], true),     // mrc 15, 0, r0, cr13, cr0, {3}
        (&[0xe855, 0x1f00], true),     // ldrex r1, [r5]
        (&[0x4b02], false),            // ldr r3, [pc, #8]
        (&[0x447b], false),            // add r3, pc
        (&[0xed9f, 0x0b02], false),    // vldr d0, [pc, #8]
        (&[0xf20f, 0x1c02], false),    // addw ip, pc, #258
        (&[0xe8df, 0xf003], false),    // tbb [pc, r3]
        (&[0xbf1a], false),            // itte ne
        (&[0xdf00], false),            // svc 0
        (&[0xbe00], false),            // bkpt
        (&[0xde00], false),            // udf
    ] {
        assert_eq!(free(halves).is_some(), copied, "{halves:x?}");
    }
}

/// A call of the kernel's helpers really goes there (`Documentation/arm/kernel_user_helpers.rst`).
#[test]
fn kernel_helpers_are_called() {
    let mut state = general(A32);
    state[12..16].copy_from_slice(&0xffff_0fc0_u32.to_le_bytes());
    assert!(emulate(&0xe12f_ff33_u32.to_le_bytes(), &mut state, &Words)); // blx r3
    assert_eq!((word(&state, 15), word(&state, 14)), (0xffff_0fc0, PC + 4));
}
