//! 64-bit ARM with A64 instructions.

use unspool_image::Arch;

use super::architecture::{Architecture, Stop, SystemCalls};

/// 11010100 00000000 00000000 00000001 (ARM DDI 0487, C6.2, SVC #0)
const SVC: &[u8] = &[0x01, 0, 0, 0xd4];

pub(super) static ARCHITECTURE: Architecture = Architecture {
    arch: Arch::Aarch64,
    own_register: "x30",
    pc: "pc",
    sp: "sp",
    thread_pointer: "tpidr",
    // AAPCS64 6.8.2
    args: ["x0", "x1", "x2", "x3"],
    result: "x0",
    condition_flags: None,
    return_register: Some(30),
    frame_register: 29,
    kept_by_waits: &[
        "sp", "x0", "x1", "x2", "x19", "x20", "x21", "x22", "x29", "x30",
    ],
    thread_descriptor_size: 0x1000,
    has_code_bit: false,
    kernel_steps: true,
    smallest_instruction: [4, 4],
    system_call: SystemCalls {
        number: "x8",
        number_inside: "x8",
        args: ["x0", "x1", "x2", "x3", "x4", "x5"],
        name: |number| syscalls::aarch64::Sysno::new(number).map(|call| call.name()),
        restart: 128,
        futexes: &[98],
        sleeps: &[101, 115],
        instruction: [SVC, SVC],
        number_in_code: None,
        stop: Stop::Instruction,
    },
    call_target,
};

/// 100101ii iiiiiiii iiiiiiii iiiiiiii, BL (ARM DDI 0487, C6.2)
fn call_target(before: &[u8], return_address: u64, _: bool) -> Option<u64> {
    let word = u32::from_le_bytes(*before.last_chunk()?);
    let distance = i64::from(((word << 6) as i32) >> 6) * 4;
    let at = return_address.checked_sub(4)?;
    (word >> 26 == 0b100101).then(|| at.wrapping_add_signed(distance))
}
