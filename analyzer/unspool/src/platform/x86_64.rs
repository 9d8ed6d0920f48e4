//! 64-bit x86 with the System V ABI.

use unspool_image::Arch;

use super::architecture::{Architecture, Stop, SystemCalls};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    arch: Arch::X86_64,
    own_register: "rip",
    pc: "rip",
    sp: "rsp",
    thread_pointer: "fs_base",
    // psABI 3.2.3
    args: ["rdi", "rsi", "rdx", "rcx"],
    result: "rax",
    condition_flags: None,
    return_register: None,
    frame_register: 6,
    kept_by_waits: &[
        "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15", "rdi", "rsi", "rdx", "r10",
    ],
    thread_descriptor_size: 0,
    has_code_bit: false,
    kernel_steps: true,
    smallest_instruction: [1, 1],
    system_call: SystemCalls {
        number: "rax",
        number_inside: "orig_rax",
        args: ["rdi", "rsi", "rdx", "r10", "r8", "r9"],
        name: |number| syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
        restart: 219,
        futexes: &[202],
        sleeps: &[35, 230],
        stop: Stop::Result("rax"),
    },
    call_target,
};

/// `call rel32`: e8 and four bytes (Intel SDM, CALL).
fn call_target(before: &[u8], return_address: u64, _: bool) -> Option<u64> {
    let code = before.last_chunk::<5>()?;
    let distance = i32::from_le_bytes(code[1..].try_into().ok()?);
    (code[0] == 0xe8).then(|| return_address.wrapping_add_signed(distance.into()))
}
