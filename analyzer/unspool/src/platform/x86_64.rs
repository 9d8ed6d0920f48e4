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
        // syscall
        instruction: [&[0x0f, 0x05], &[0x0f, 0x05]],
        number_in_code: Some(number_in_code),
        stop: Stop::Result("rax"),
    },
    call_target,
};

/// The constant that the last of these instructions puts into eax: `mov eax, imm32` (b8), or `xor
/// eax, eax` (31 c0 or 33 c0). `None` if eax is loaded from a register or from memory (89, 8b), or
/// if a `ret` (c3) comes later.
fn number_in_code(before: &[u8]) -> Option<u64> {
    let found = (0..before.len()).rev().find_map(|at| {
        // A prefix selects another register, or a longer constant.
        let has_prefix = at > 0 && before[at - 1] & 0xf0 == 0x40;
        match &before[at..] {
            [0x89, operands, ..] if operands & 0xc7 == 0xc0 => Some(None),
            [0x8b, operands, ..] if operands & 0x38 == 0 => Some(None),
            // push N; pop rax
            [0x6a, number @ ..0x80, 0x58, ..] => Some(Some(u64::from(*number))),
            [0xc3, ..] => Some(None),
            _ if has_prefix => None,
            [0x31 | 0x33, 0xc0, ..] => Some(Some(0)),
            [0xb8, low, high, 0, 0, ..] => Some(Some(u16::from_le_bytes([*low, *high]).into())),
            _ => None,
        }
    });
    found.flatten()
}

/// `call rel32`: e8 and four bytes (Intel SDM, CALL).
fn call_target(before: &[u8], return_address: u64, _: bool) -> Option<u64> {
    let code = before.last_chunk::<5>()?;
    let distance = i32::from_le_bytes(code[1..].try_into().ok()?);
    (code[0] == 0xe8).then(|| return_address.wrapping_add_signed(distance.into()))
}
