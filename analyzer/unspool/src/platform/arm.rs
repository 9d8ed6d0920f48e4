//! 32-bit ARM EABI with A32 and T32 instructions. The code bit selects T32 (aaelf32 5.5.3).

use unspool_image::Arch;

use super::architecture::{Architecture, Stop, SystemCalls};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    arch: Arch::Arm,
    own_register: "cpsr",
    pc: "pc",
    sp: "sp",
    thread_pointer: "tpidruro",
    // AAPCS32 6.5
    args: ["r0", "r1", "r2", "r3"],
    result: "r0",
    condition_flags: Some("cpsr"),
    return_register: Some(14),
    frame_register: 11,
    kept_by_waits: &[
        "sp", "r0", "r1", "r2", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "lr",
    ],
    thread_descriptor_size: 0x1000,
    has_code_bit: true,
    kernel_steps: false,
    smallest_instruction: [4, 2],
    system_call: SystemCalls {
        number: "r7",
        number_inside: "r7",
        args: ["r0", "r1", "r2", "r3", "r4", "r5"],
        name: |number| syscalls::arm::Sysno::new(number).map(|call| call.name()),
        restart: 0,
        // With 32 and 64 bits of time.
        futexes: &[240, 422],
        sleeps: &[162, 265, 407],
        // ARM DDI 0406, A8.8.228, SVC #0: 11101111 0..., and 11011111 00000000
        instruction: [&[0, 0, 0, 0xef], &[0, 0xdf]],
        number_in_code: None,
        stop: Stop::Instruction,
    },
    call_target,
};

/// The A32 and T32 forms of BL and BLX (ARM DDI 0406, A8.8.25).
fn call_target(before: &[u8], return_address: u64, thumb: bool) -> Option<u64> {
    let return_address = return_address & !1;
    let code = before.last_chunk::<4>()?;
    if thumb {
        let first = u32::from(u16::from_le_bytes([code[0], code[1]]));
        let second = u32::from(u16::from_le_bytes([code[2], code[3]]));
        // 11110Siiiiiiiiii 11j1kiiiiiiiiiii
        if first >> 11 != 0b11110 || second >> 14 != 0b11 {
            return None;
        }
        let sign = first >> 10 & 1;
        let bit = |at: u32| !(second >> at & 1 ^ sign) & 1;
        let distance = (sign << 24
            | bit(13) << 23
            | bit(11) << 22
            | (first & 0x3ff) << 12
            | (second & 0x7ff) << 1)
            << 7;
        let distance = i64::from((distance as i32) >> 7);
        // A call to A32 code is relative to the word that holds the instruction.
        let base = if second >> 12 & 1 == 1 {
            return_address
        } else {
            return_address & !3
        };
        return Some(base.wrapping_add_signed(distance));
    }
    let word = u32::from_le_bytes(*code);
    let distance = i64::from(((word << 8) as i32) >> 8) * 4;
    let base = return_address.wrapping_add(4);
    match word >> 24 {
        0xeb => Some(base.wrapping_add_signed(distance)),
        0xfa | 0xfb => Some(base.wrapping_add_signed(distance + i64::from(word >> 24 & 1) * 2)),
        _ => None,
    }
}
