//! The ARM part of the test that steps a thread through a collector
//! (`tracee/fast_tracepoints/tests.rs`).

use super::user_regs::{self, COUNT, ORIG_R0, STATE, set_word};
use crate::sys::Tid;

/// Note type and size of NT_PRSTATUS.
pub(crate) const GENERAL: (u32, usize) = (1, 4 * COUNT);
pub(crate) const PC: usize = user_regs::PC;
/// Number in the `g` packet of a register that holds an unmapped address.
pub(crate) const POINTER_TO_NOTHING: usize = 3;
/// Number of the system call that sets the thread pointer (Linux
/// `arch/arm/include/uapi/asm/unistd.h`: `set_tls`).
pub(crate) const SET_THREAD_POINTER: Option<u64> = Some(0xf_0005);
/// Instructions for a jump to displace, and the breakpoint kind. The text of each is the GNU
/// assembler's.
pub(crate) const CASES: &[(usize, &[u8])] = &[
    (4, &0xe285_6011_u32.to_le_bytes()),        // add r6, r5, #17
    (4, &0xe92d_4070_u32.to_le_bytes()),        // push {r4, r5, r6, lr}
    (4, &0x0285_6011_u32.to_le_bytes()),        // addeq r6, r5, #17
    (4, &0x1285_6011_u32.to_le_bytes()),        // addne r6, r5, #17
    (4, &0xe59f_6010_u32.to_le_bytes()),        // ldr r6, [pc, #16]
    (4, &0xe51f_601c_u32.to_le_bytes()),        // ldr r6, [pc, #-28]
    (4, &0xe28f_6010_u32.to_le_bytes()),        // add r6, pc, #16
    (4, &0xe24f_6010_u32.to_le_bytes()),        // sub r6, pc, #16
    (4, &0xe08f_6005_u32.to_le_bytes()),        // add r6, pc, r5
    (4, &0xe085_500f_u32.to_le_bytes()),        // add r5, r5, pc
    (4, &0xe1a0_e00f_u32.to_le_bytes()),        // mov lr, pc
    (4, &0xea00_0006_u32.to_le_bytes()),        // b .+32
    (4, &0x0a00_0006_u32.to_le_bytes()),        // beq .+32
    (4, &0x1a00_0006_u32.to_le_bytes()),        // bne .+32
    (4, &0xeb00_0006_u32.to_le_bytes()),        // bl .+32
    (4, &0xfb00_0006_u32.to_le_bytes()),        // blx .+34
    (2, &[0x2e, 0x1d, 0x70, 0xb4]),             // adds r6, r5, #4; push {r4, r5, r6}
    (3, &[0x05, 0xf1, 0x11, 0x06]),             // add.w r6, r5, #17
    (2, &[0x2e, 0x1d, 0x05, 0xf1, 0x11, 0x06]), // adds r6, r5, #4; add.w r6, r5, #17
    (2, &[0x2e, 0x1d, 0x04, 0x4e]),             // adds r6, r5, #4; ldr r6, [pc, #16]
    (2, &[0x04, 0x4e, 0x7e, 0x44]),             // ldr r6, [pc, #16]; add r6, pc
    (2, &[0x04, 0xa6, 0x7d, 0x46]),             // adr r6, .+20; mov r5, pc
    (2, &[0x2e, 0x1d, 0x08, 0xe0]),             // adds r6, r5, #4; b.n .+20
    (2, &[0x2e, 0x1d, 0x08, 0xd0]),             // adds r6, r5, #4; beq.n .+20
    (2, &[0x2e, 0x1d, 0x08, 0xd1]),             // adds r6, r5, #4; bne.n .+20
    (2, &[0x2e, 0x1d, 0x45, 0xb1]),             // adds r6, r5, #4; cbz r5, .+20
    (2, &[0x2e, 0x1d, 0x45, 0xb9]),             // adds r6, r5, #4; cbnz r5, .+20
    (3, &[0xdf, 0xf8, 0x10, 0x60]),             // ldr.w r6, [pc, #16]
    (3, &[0x5f, 0xf8, 0x1c, 0x60]),             // ldr.w r6, [pc, #-28]
    (3, &[0x0f, 0xf2, 0x11, 0x06]),             // addw r6, pc, #17
    (3, &[0xaf, 0xf2, 0x11, 0x06]),             // subw r6, pc, #17
    (3, &[0x00, 0xf0, 0x08, 0xb8]),             // b.w .+20
    (3, &[0x00, 0xf0, 0x08, 0x80]),             // beq.w .+20
    (3, &[0x40, 0xf0, 0x08, 0x80]),             // bne.w .+20
    (3, &[0x00, 0xf0, 0x08, 0xf8]),             // bl .+20
    (3, &[0x00, 0xf0, 0x08, 0xe8]),             // blx .+20
];

/// N, Z, C, V, and T32.
const FLAGS: u64 = 0xf000_0020;

/// Fills the registers with distinct values.
pub(crate) fn fill(general: &mut [u8], _tid: Tid, kind: usize) {
    for index in (0..15).filter(|index| *index != 13) {
        let value = 0x1111_1111_u32.wrapping_mul(index as u32 + 1) >> 2;
        set_word(general, index, value);
    }
    set_word(general, POINTER_TO_NOTHING, 0x10);
    // Set carry and zero.
    let thumb = if kind == 4 { 0 } else { 1 << 5 };
    set_word(general, STATE, 0x6000_0010 | thumb);
}

/// Removes the values that belong to the kernel.
pub(crate) fn settle(words: &mut [u64]) {
    words[STATE] &= FLAGS;
    words[ORIG_R0] = 0;
}

/// Nothing to do: a sequence with an exclusive store is one step.
pub(crate) fn store_by_hand(_code: &[u8], _general: &mut [u8]) -> Option<(u64, Vec<u8>)> {
    None
}
