//! The AArch64 part of the test that steps a thread through a collector
//! (`tracee/fast_tracepoints/tests.rs`).

use super::user_regs::{self, COUNT, STATE, set_word, word};
use crate::sys::{Tid, ptrace};

/// Note type and size of NT_PRSTATUS.
pub(crate) const GENERAL: (u32, usize) = (1, 8 * COUNT);
pub(crate) const PC: usize = user_regs::PC;
/// Number in the `g` packet of a register that holds an unmapped address.
pub(crate) const POINTER_TO_NOTHING: usize = 3;
/// Number of the system call that sets the thread pointer; `None`, because [`fill`] sets it.
pub(crate) const SET_THREAD_POINTER: Option<u64> = None;
/// Instructions for a jump to displace, and the breakpoint kind. The text of each is the GNU
/// assembler's.
pub(crate) const CASES: &[(usize, &[u8])] = &[
    (4, &0x9100_46b4_u32.to_le_bytes()), // add x20, x21, #17
    (4, &0xa9be_7bfd_u32.to_le_bytes()), // stp x29, x30, [sp, #-32]!
    (4, &0xd503_233f_u32.to_le_bytes()), // paciasp
    (4, &0xb0ff_ffe1_u32.to_le_bytes()), // adrp x1, .-3 pages
    (4, &0x1000_0201_u32.to_le_bytes()), // adr x1, .+64
    (4, &0xd800_0200_u32.to_le_bytes()), // prfm pldl1keep, .+64
    (4, &0x1400_0010_u32.to_le_bytes()), // b .+64
    (4, &0x9400_0010_u32.to_le_bytes()), // bl .+64
    (4, &0x5400_0202_u32.to_le_bytes()), // b.cs .+64
    (4, &0x5400_0203_u32.to_le_bytes()), // b.cc .+64
    (4, &0xb400_0203_u32.to_le_bytes()), // cbz x3, .+64
    (4, &0x35ff_fe03_u32.to_le_bytes()), // cbnz w3, .-64
    (4, &0x3620_0203_u32.to_le_bytes()), // tbz w3, #4, .+64
    (4, &0x3720_0203_u32.to_le_bytes()), // tbnz w3, #4, .+64
    (4, &0xc85f_7c41_u32.to_le_bytes()), // ldxr x1, [x2]
];

/// N, Z, C, V.
const FLAGS: u64 = 0xf000_0000;
/// NT_ARM_TLS
const THREAD_POINTER: u32 = 0x401;

/// Fills the registers with distinct values. Sets the thread pointer, as the C library does in
/// every thread.
pub(crate) fn fill(general: &mut [u8], tid: Tid, _kind: usize) {
    for index in 0..31 {
        let value = 0x1111_1111_1111_1111_u64.wrapping_mul(index as u64 + 1) >> 4;
        set_word(general, index, value);
    }
    set_word(general, POINTER_TO_NOTHING, 0x10);
    let stack = word(general, user_regs::SP);
    set_word(general, 2, stack);
    // Set carry and zero.
    set_word(general, STATE, word(general, STATE) & !FLAGS | 0x6000_0000);
    ptrace::set_register_set(tid, THREAD_POINTER, &0x0012_3400_u64.to_le_bytes()).unwrap();
}

/// Removes the bits of the state that belong to the kernel.
pub(crate) fn settle(words: &mut [u64]) {
    words[STATE] &= FLAGS;
}

/// Emulates a store-exclusive as if it succeeded. The processor cannot execute it after a single
/// step, because each step clears the exclusive monitor. Returns the address and the bytes to
/// store.
pub(crate) fn store_by_hand(code: &[u8], general: &mut [u8]) -> Option<(u64, Vec<u8>)> {
    let code = u32::from_le_bytes(*code.first_chunk()?);
    // STXR, STLXR of 32 and 64 bits: 1x00 1000 000s ssss o111 11nn nnnt tttt
    if code & 0xbfe0_7c00 != 0x8800_7c00 {
        return None;
    }
    let register = |at: u32| (code >> at & 31) as usize;
    let value = word(general, register(0)).to_le_bytes();
    let length = if code >> 30 & 1 == 1 { 8 } else { 4 };
    set_word(general, register(16), 0);
    let next = word(general, PC) + 4;
    set_word(general, PC, next);
    Some((word(general, register(5)), value[..length].to_vec()))
}
