//! The x86-64 part of the test that steps a thread through a collector
//! (`tracee/fast_tracepoints/tests.rs`).

use super::user_regs::{COUNT, FLAGS, FS_BASE, ORIG_RAX, set_word};
use crate::sys::Tid;

/// Note type and size of NT_PRSTATUS.
pub(crate) const GENERAL: (u32, usize) = (1, 8 * COUNT);
pub(crate) const PC: usize = super::user_regs::RIP;
/// Number in the `g` packet of a register that holds an unmapped address: rbx.
pub(crate) const POINTER_TO_NOTHING: usize = 3;
/// Number of the system call that sets the thread pointer; `None`, because [`fill`] sets it.
pub(crate) const SET_THREAD_POINTER: Option<u64> = None;
/// Instructions for a jump to displace, with the code after them, and the breakpoint kind.
pub(crate) const CASES: &[(usize, &[u8])] = &[
    // push rbp; mov ebp, esp; lea rax, [rip + 0x1234]; nop
    (
        1,
        &[
            0x55, 0x89, 0xe5, 0x48, 0x8d, 0x05, 0x34, 0x12, 0, 0, 0x90, 0x90,
        ],
    ),
    // test rdi, rdi; je +0x3b, which is not taken
    (1, &[0x48, 0x85, 0xff, 0x74, 0x3b, 0x90, 0x90]),
];

/// Flags that steps and resumes change: TF, RF (Intel SDM vol. 3, 17.3.1).
const STEPPING: u64 = 1 << 8 | 1 << 16;

/// Fills the registers with distinct values. Sets the thread pointer, as the C library does in
/// every thread.
pub(crate) fn fill(general: &mut [u8], _tid: Tid, _kind: usize) {
    for index in (0..15).filter(|index| ![4].contains(index)) {
        let value = 0x1111_1111_1111_1111_u64.wrapping_mul(index as u64 + 1) >> 4;
        set_word(general, index, value);
    }
    set_word(general, 12, 0x10);
    set_word(general, FS_BASE, 0x0012_3400);
    // Set the direction flag and the carry flag.
    general[8 * FLAGS + 1] |= 4;
    general[8 * FLAGS] |= 1;
}

/// Removes the bits that the kernel and steps change.
pub(crate) fn settle(words: &mut [u64]) {
    words[FLAGS] &= !STEPPING;
    words[ORIG_RAX] = u64::MAX;
}

/// Nothing to do: a single step executes every instruction completely.
pub(crate) fn store_by_hand(_code: &[u8], _general: &mut [u8]) -> Option<(u64, Vec<u8>)> {
    None
}

/// A displaced jump keeps its target. Only a conditional jump may precede other instructions.
#[test]
fn displaced_jumps_keep_their_targets() {
    use crate::arch::collector::{displaceable, generate};
    use crate::arch::fast::{Order, Site};
    // test rdi, rdi; je +0x3b
    let code = [0x48, 0x85, 0xff, 0x74, 0x3b];
    let displaceable = |code: &[u8]| {
        displaceable(&Site {
            at: 0x10_0000,
            kind: 1,
            code,
            capabilities: [0; 2],
            read: &|_, _| false,
        })
    };
    assert_eq!(displaceable(&code), Some(5));
    // je +0x3b; test rdi, rdi
    let branch_first = [0x74, 0x3b, 0x48, 0x85, 0xff];
    assert_eq!(displaceable(&branch_first), Some(5));
    // jmp +0x3b; test rdi, rdi
    assert_eq!(displaceable(&[0xeb, 0x3b, 0x48, 0x85, 0xff]), None);
    let order = |code| Order {
        id: 0,
        start: 0x20_0000,
        pool: 0x30_0000,
        slots: 16,
        slot_size: 256,
        at: 0x10_0000,
        kind: 1,
        displaced: code,
        blocks: &[],
        condition: None,
        stack_left: None,
    };
    for (code, jump, behind) in [(&code, 3, 5), (&branch_first, 0, 2)] {
        let order = order(code);
        let collector = generate(&order).expect("a collector");
        let copy = &collector.code[collector.copy() as usize..];
        assert_eq!(copy[jump..jump + 2], [0x0f, 0x84]);
        let field = copy[jump + 2..jump + 6].try_into().unwrap();
        let next = order.start + collector.copy() + jump as u64 + 6;
        let target = next.wrapping_add_signed(i32::from_le_bytes(field).into());
        assert_eq!(target, order.at + behind + 0x3b);
        let other = [0x48, 0x85, 0xff];
        let at = if jump == 0 { 6 } else { 0 };
        assert_eq!(copy[at..at + 3], other);
    }
}
