//! ARM (A32 and T32, hard float). Registers are in the format of `struct pt_regs` and
//! `struct user_vfp`.

mod a32;
mod assembler;
pub(crate) mod call;
pub(crate) mod collector;
mod debug;
mod displace;
mod flow;
mod moved;
mod next_pcs;
mod relative;
#[cfg(test)]
pub(crate) mod stepped;
mod t32;
pub(crate) mod trap_handler;
mod user_regs;

pub(crate) use debug::{can_watch, triggered, watch};

use std::ops::Range;

use super::table::{Feature, Set, numbers, one};
use crate::sys::ptrace::THREAD_AREA;

pub(crate) use displace::{displace, emulate, may_displace};

/// The architecture's name in target descriptions.
pub(crate) const NAME: &str = "arm";
/// An address in the program.
pub(crate) type Word = u32;
/// The architecture in the crate `gdbstub_arch`.
pub(crate) type Described = gdbstub_arch::arm::Armv4t;
/// The bytes of `Described`'s registers at the start of a `g` packet: r0 to pc, and cpsr after the
/// FPA registers, which target.xml lacks.
pub(crate) const DESCRIBED: [Range<usize>; 2] = [0..64, 164..168];
/// The register sets: general, VFP, thread pointer.
pub(crate) const SETS: &[Set] = &[
    Set {
        note: 1, // NT_PRSTATUS
        capacity: 18 * 4,
    },
    Set {
        note: 0x400, // NT_ARM_VFP
        capacity: 32 * 8 + 4,
    },
    Set {
        note: THREAD_AREA,
        capacity: 4,
    },
];
/// Number of the program counter.
pub(crate) const PC: usize = 15;
/// The registers in the kernel's samples: their bits in the kernel's mask (`enum
/// perf_event_arm_regs`), ascending, and their numbers, which are equal. There is no cpsr.
pub(crate) const SAMPLED: &[(u32, usize)] = &numbers::<16>();
/// The registers of a blocked thread that tell its system call: r0, r1, r7, lr, pc. The calls are
/// restart_syscall, futex and futex_time64.
pub(crate) const BLOCKED: super::BlockedRegisters = super::BlockedRegisters {
    bits: &[0, 1, 7, 14, 15],
    pc: 4,
    args: [0, 1],
    number: Some(2),
    link: Some(3),
    futex: &[0, 240, 422],
};
/// Maximum number of stack words in a blocked thread's sample. The frames between the system call
/// and the caller of glibc's `pthread_cond_wait` have 52, those of `pthread_rwlock_rdlock` 26.
pub(crate) const STACK_WORDS: usize = 56;
/// Number of the register that points to a thread's own data: tpidruro.
pub(crate) const THREAD_POINTER: Option<usize> = Some(59);
/// Whether thread-local data is below the address in that register (ELF Handling for TLS, variant
/// II).
pub(crate) const TLS_BELOW_POINTER: bool = false;
/// Number of the stack pointer.
pub(crate) const SP: usize = 13;
/// Words of the general registers' set that the kernel may change by itself: CPSR, orig_r0.
pub(crate) const KERNELS: &[usize] = &[16, 17];
/// Registers sent with every stop: r7, r11, sp, lr, pc, cpsr.
pub(crate) const EXPEDITED: &[usize] = &[7, 11, 13, 14, PC, 25];
/// Distance from a trap instruction to the program counter at its report, in bytes.
pub(crate) const TRAP_ADVANCE: u64 = 0;
/// Whether a trap may replace an instruction while other threads may execute it. Only a few
/// instructions allow it (DDI 0406C, A3.5.4). Besides, the kernel reads an undefined instruction
/// again to check whether it is a trap (its `do_undefinstr`), and finds no trap if the stub has
/// removed it in the meantime.
pub(crate) const TEXT_MAY_CHANGE: bool = false;
/// Whether the kernel can single-step here. Linux removed single-stepping for ARM in 2011.
pub(crate) const CAN_STEP: bool = false;

/// Whether a word may be the address to which a function returns. The kernel maps nothing
/// below 64 KiB (vm.mmap_min_addr), and its vectors above. Bit 0 selects T32 code; A32
/// instructions are at multiples of 4.
pub(crate) fn may_return_to(word: u64) -> bool {
    (0x1_0000..0xffff_0000).contains(&word) && word & 3 != 2
}

/// The trap instruction for breakpoint kind `kind`: 2 = T16, 3 = T32, 4 = A32. These are the
/// undefined instructions that Linux reports as `SIGTRAP` (its `arch/arm/kernel/ptrace.c`).
pub(crate) fn trap(kind: usize) -> Option<&'static [u8]> {
    match kind {
        2 => Some(&[0x01, 0xde]),
        3 => Some(&[0xf0, 0xf7, 0x00, 0xa0]),
        4 => Some(&[0xf0, 0x01, 0xf0, 0xe7]),
        _ => None,
    }
}

/// Whether `si_code` of a `SIGTRAP` means a trap instruction.
pub(crate) fn is_trap_report(code: i32) -> bool {
    code == libc::TRAP_BRKPT
}

/// Whether an instruction makes a system call: A32 `svc` is `cccc1111 iiiiiiii iiiiiiii iiiiiiii`,
/// T16 `svc` is `11011111 iiiiiiii`.
pub(crate) fn is_system_call(code: &[u8], general: &[u8]) -> bool {
    match (registers(general), code) {
        (Some(registers), [_, high, ..]) if registers.thumb() => *high == 0xdf,
        (Some(registers), [_, _, _, top, ..]) => {
            top & 0x0f == 0x0f && top >> 4 != 0x0f && registers.passes(top >> 4)
        }
        _ => false,
    }
}

/// Never true: the kernel restarts an interrupted system call before a tracer sees the thread.
pub(crate) fn goes_back(_general: &[u8]) -> bool {
    false
}

/// Whether the system call before the program counter was interrupted and will be restarted; its
/// result is in r0.
pub(crate) fn was_interrupted(general: &[u8]) -> bool {
    let result = general
        .first_chunk()
        .map(|bytes| i32::from_le_bytes(*bytes).into());
    result.is_some_and(super::is_restart_result)
}

/// Number of the system call that a thread is in: r7 (EABI).
pub(crate) fn system_call(general: &[u8]) -> Option<u64> {
    registers(general).map(|registers| registers.r[7].into())
}

/// The places that the next instruction can lead to: address and breakpoint kind.
pub(crate) fn next_places(
    general: &[u8],
    read: &dyn Fn(u64, &mut [u8]) -> bool,
) -> Vec<(u64, usize)> {
    registers(general)
        .map(|registers| next_pcs::next_pcs(&registers, read))
        .unwrap_or_default()
}

/// The registers in `struct pt_regs`: r0 to r15, and the CPSR.
fn registers(general: &[u8]) -> Option<flow::Registers> {
    let word = |index: usize| {
        let bytes = general.get(4 * index..4 * index + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let mut r = [0; 16];
    for (index, register) in r.iter_mut().enumerate() {
        *register = word(index)?;
    }
    Some(flow::Registers { r, cpsr: word(16)? })
}

/// Address and breakpoint kind of a tracepoint's trap. An odd address means T32. For an even one,
/// the client does not say which instruction set it is.
pub(crate) fn place(
    address: u64,
    general: &[u8],
    read: &dyn Fn(u64, &mut [u8]) -> bool,
) -> (u64, usize) {
    let thumb = address & 3 != 0 || looks_like_t32(address, read).unwrap_or_else(|| thumb(general));
    next_pcs::whole(address as u32 | u32::from(thumb), read)
}

/// Whether a thread with these registers executes T32.
fn thumb(general: &[u8]) -> bool {
    registers(general).is_some_and(|registers| registers.thumb())
}

/// Whether text is T32. `None` if it may be either. Most words of A32 begin with the condition
/// `1110` (always), but few halfwords of T32 do.
fn looks_like_t32(at: u64, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Option<bool> {
    let mut words = [0; 16];
    if !read(at, &mut words) {
        return None;
    }
    match words.chunks(4).filter(|word| word[3] >> 4 == 0xe).count() {
        0 | 1 => Some(true),
        2 => None,
        _ => Some(false),
    }
}

/// Maximum distance from an instruction to its slot. Unlimited: the jump back is absolute.
pub(crate) const SLOT_REACH: u64 = 1 << 32;

/// Nothing to do: every register set is complete.
pub(crate) fn before_write(_set: usize, _offset: usize, _bytes: &mut [u8]) {}

/// The table of all registers.
pub(crate) const FEATURES: &[Feature] = &[
    Feature {
        name: "org.gnu.gdb.arm.core",
        types: "",
        rows: &[
            one("r", 32, "uint32", GENERAL, 0).run(0, 13),
            one("sp", 32, "data_ptr", GENERAL, 13 * 4),
            one("lr", 32, "int", GENERAL, 14 * 4),
            one("pc", 32, "code_ptr", GENERAL, 15 * 4),
            // 16-24 were the FPA registers.
            one("cpsr", 32, "int", GENERAL, 16 * 4).number(25),
        ],
        needs: None,
    },
    Feature {
        name: "org.gnu.gdb.arm.vfp",
        types: "",
        rows: &[
            one("d", 64, "ieee_double", VFP, 0).run(0, 32),
            one("fpscr", 32, "int", VFP, 256).group("float"),
        ],
        needs: None,
    },
    // It has no registers: it tells gdb to show d0-d31 also as q0-q15.
    Feature {
        name: "org.gnu.gdb.arm.neon",
        types: "",
        rows: &[],
        needs: Some("neon"),
    },
    Feature {
        name: "org.gnu.gdb.arm.tls",
        types: "",
        rows: &[one("tpidruro", 32, "data_ptr", TLS, 0)],
        needs: None,
    },
];

const GENERAL: usize = 0;
const VFP: usize = 1;
const TLS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_set_of_text() {
        let kind = |halves: &[u16]| {
            let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
            let read = |at: u64, into: &mut [u8]| {
                let from = bytes.get((at - 0x1000) as usize..);
                let found = from.and_then(|from| from.get(..into.len()));
                found.map(|found| into.copy_from_slice(found)).is_some()
            };
            place(0x1000, &[], &read)
        };
        // ldr r3, [r0]; add r3, r3, #1; str r3, [r0]; bx lr
        let a32 = [
            0x3000, 0xe590, 0x3001, 0xe283, 0x3000, 0xe580, 0xff1e, 0xe12f,
        ];
        assert_eq!(kind(&a32), (0x1000, 4));
        // ldr r3, [r0]; adds r3, #1; str r3, [r0]; bx lr; push {r4-r7, lr}; sub sp, #20; mov r7,
        // r0; mov r3, r0
        let t16 = [
            0x6803, 0x3301, 0x6003, 0x4770, 0xb5f0, 0xb085, 0x4607, 0x4603,
        ];
        assert_eq!(kind(&t16), (0x1000, 2));
        // stmdb sp!, {r4-r9, lr}; mov r8, r0; ldrd r0, r1, [r1]; bl; mov r7, r0
        let t32 = [
            0xe92d, 0x43f0, 0x4680, 0xe9d1, 0x0100, 0xf7ff, 0xef78, 0x4607,
        ];
        assert_eq!(kind(&t32), (0x1000, 3));
    }
}
