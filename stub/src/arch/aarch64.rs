//! AArch64. Registers are in the format of `struct user_pt_regs`, `struct user_fpsimd_state` and
//! `NT_ARM_TLS`.

mod assembler;
pub(crate) mod call;
pub(crate) mod collector;
mod debug;
mod displace;
mod instruction;
#[cfg(test)]
pub(crate) mod stepped;
pub(crate) mod trap_handler;
mod user_regs;

pub(crate) use debug::{can_watch, triggered, watch};

use std::ops::Range;

use super::table::{Feature, Set, numbers, one};

pub(crate) use displace::{displace, emulate};

/// The architecture's name in target descriptions.
pub(crate) const NAME: &str = "aarch64";
/// An address in the program.
pub(crate) type Word = u64;
/// The architecture in the crate `gdbstub_arch`.
pub(crate) type Described = gdbstub_arch::aarch64::AArch64;
/// The bytes of `Described`'s registers at the start of a `g` packet: all up to v31. It swaps fpsr
/// and fpcr, which follow.
pub(crate) const DESCRIBED: [Range<usize>; 1] = [Range { start: 0, end: 780 }];
/// The register sets: general, floating point, thread pointer.
pub(crate) const SETS: &[Set] = &[
    Set {
        note: 1, // NT_PRSTATUS
        capacity: 34 * 8,
    },
    Set {
        note: 2, // NT_PRFPREG
        capacity: 32 * 16 + 16,
    },
    Set {
        note: 0x401, // NT_ARM_TLS
        capacity: 8,
    },
];
/// Number of the program counter.
pub(crate) const PC: usize = 32;
/// The registers in the kernel's samples: their bits in the kernel's mask (`enum
/// perf_event_arm64_regs`), ascending, and their numbers, which are equal.
pub(crate) const SAMPLED: &[(u32, usize)] = &numbers::<33>();
/// The registers of a blocked thread that tell its system call: x0, x1, x8, x30, pc. The calls are
/// futex and restart_syscall.
pub(crate) const BLOCKED: super::BlockedRegisters = super::BlockedRegisters {
    bits: &[0, 1, 8, 30, 32],
    pc: 4,
    args: [0, 1],
    number: Some(2),
    link: Some(3),
    futex: &[98, 128],
};
/// Maximum number of stack words in a blocked thread's sample. The frames between the system call
/// and the caller of glibc's `pthread_cond_wait` have 10, and more if it takes the mutex again.
pub(crate) const STACK_WORDS: usize = 36;
/// Number of the register that points to a thread's own data: tpidr.
pub(crate) const THREAD_POINTER: Option<usize> = Some(68);
/// Whether thread-local data is below the address in that register (ELF Handling for TLS, variant
/// II).
pub(crate) const TLS_BELOW_POINTER: bool = false;
/// Number of the stack pointer.
pub(crate) const SP: usize = 31;
/// Words of the general registers' set that the kernel may change by itself: PSTATE.
pub(crate) const KERNELS: &[usize] = &[33];
/// Registers sent with every stop: x29, x30, sp, pc.
pub(crate) const EXPEDITED: &[usize] = &[29, 30, 31, PC];
/// Distance from a trap instruction to the program counter at its report, in bytes.
pub(crate) const TRAP_ADVANCE: u64 = 0;
/// Whether a trap may replace an instruction while other threads may execute it. Only a few
/// instructions allow it (DDI 0487, B2.2.5).
pub(crate) const TEXT_MAY_CHANGE: bool = false;
/// Whether the kernel can single-step here.
pub(crate) const CAN_STEP: bool = true;

/// Whether a word may be the address to which a function returns. The kernel maps nothing
/// below 64 KiB (vm.mmap_min_addr). Above 48 bits, an address may have an authentication code.
pub(crate) fn may_return_to(word: u64) -> bool {
    word & 0xffff_ffff_ffff >= 0x1_0000 && word.is_multiple_of(4)
}

/// The trap instruction for breakpoint kind `kind`: `brk #0`.
pub(crate) fn trap(kind: usize) -> Option<&'static [u8]> {
    (kind == 4).then_some(&[0x00, 0x00, 0x20, 0xd4])
}

/// Whether `si_code` of a `SIGTRAP` means a trap instruction.
pub(crate) fn is_trap_report(code: i32) -> bool {
    code == libc::TRAP_BRKPT
}

/// Whether an instruction makes a system call: `svc` is `11010100 000iiiii iiiiiiii iii00001`.
pub(crate) fn is_system_call(code: &[u8], _general: &[u8]) -> bool {
    matches!(code, [low, _, high, 0xd4, ..] if low & 0x1f == 1 && high & 0xe0 == 0)
}

/// Never true: the kernel restarts an interrupted system call before a tracer sees the thread.
pub(crate) fn goes_back(_general: &[u8]) -> bool {
    false
}

/// Whether the system call before the program counter was interrupted and will be restarted; its
/// result is in x0.
pub(crate) fn was_interrupted(general: &[u8]) -> bool {
    let result = general
        .first_chunk()
        .map(|bytes| i64::from_le_bytes(*bytes));
    result.is_some_and(super::is_restart_result)
}

/// Number of the system call that a thread is in: x8.
pub(crate) fn system_call(general: &[u8]) -> Option<u64> {
    general
        .get(8 * 8..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

/// Address and breakpoint kind of a tracepoint's trap.
pub(crate) fn place(
    address: u64,
    _general: &[u8],
    _read: &dyn Fn(u64, &mut [u8]) -> bool,
) -> (u64, usize) {
    (address, 4)
}

/// Maximum distance from an instruction to its slot, in bytes: the reach of `b`.
pub(crate) const SLOT_REACH: u64 = 120 << 20;

/// Any instruction can be displaced in any state.
pub(crate) fn may_displace(_general: &[u8]) -> bool {
    true
}

/// The places where a step can end. Empty: the kernel single-steps here.
pub(crate) fn next_places(
    _general: &[u8],
    _read: &dyn Fn(u64, &mut [u8]) -> bool,
) -> Vec<(u64, usize)> {
    Vec::new()
}

/// Nothing to do: every register set is complete.
pub(crate) fn before_write(_set: usize, _offset: usize, _bytes: &mut [u8]) {}

/// The table of all registers.
pub(crate) const FEATURES: &[Feature] = &[
    Feature {
        name: "org.gnu.gdb.aarch64.core",
        types: CORE_TYPES,
        rows: &[
            one("x", 64, "int", GENERAL, 0).run(0, 31),
            one("sp", 64, "data_ptr", GENERAL, 31 * 8),
            one("pc", 64, "code_ptr", GENERAL, 32 * 8),
            one("cpsr", 32, "cpsr_flags", GENERAL, 33 * 8),
        ],
        needs: None,
    },
    Feature {
        name: "org.gnu.gdb.aarch64.fpu",
        types: FPU_TYPES,
        rows: &[
            one("v", 128, "aarch64v", FLOAT, 0).run(0, 32),
            one("fpsr", 32, "int", FLOAT, 512),
            one("fpcr", 32, "int", FLOAT, 516),
        ],
        needs: None,
    },
    Feature {
        name: "org.gnu.gdb.aarch64.tls",
        types: "",
        rows: &[one("tpidr", 64, "data_ptr", TLS, 0)],
        needs: None,
    },
];

const GENERAL: usize = 0;
const FLOAT: usize = 1;
const TLS: usize = 2;

const CORE_TYPES: &str = r#"<flags id="cpsr_flags" size="4"><field name="SP" start="0" end="0"/>
<field name="EL" start="2" end="3"/><field name="nRW" start="4" end="4"/><field name="F" start="6" end="6"/>
<field name="I" start="7" end="7"/><field name="A" start="8" end="8"/><field name="D" start="9" end="9"/>
<field name="BTYPE" start="10" end="11"/><field name="SSBS" start="12" end="12"/><field name="IL" start="20" end="20"/>
<field name="SS" start="21" end="21"/><field name="PAN" start="22" end="22"/><field name="UAO" start="23" end="23"/>
<field name="DIT" start="24" end="24"/><field name="TCO" start="25" end="25"/><field name="V" start="28" end="28"/>
<field name="C" start="29" end="29"/><field name="Z" start="30" end="30"/><field name="N" start="31" end="31"/></flags>"#;

const FPU_TYPES: &str = r#"<vector id="v2d" type="ieee_double" count="2"/><vector id="v2u" type="uint64" count="2"/>
<vector id="v2i" type="int64" count="2"/><vector id="v4f" type="ieee_single" count="4"/>
<vector id="v4u" type="uint32" count="4"/><vector id="v4i" type="int32" count="4"/>
<vector id="v8f" type="ieee_half" count="8"/><vector id="v8u" type="uint16" count="8"/>
<vector id="v8i" type="int16" count="8"/><vector id="v16u" type="uint8" count="16"/>
<vector id="v16i" type="int8" count="16"/><vector id="v1u" type="uint128" count="1"/>
<vector id="v1i" type="int128" count="1"/>
<union id="vnd"><field name="f" type="v2d"/><field name="u" type="v2u"/><field name="s" type="v2i"/></union>
<union id="vns"><field name="f" type="v4f"/><field name="u" type="v4u"/><field name="s" type="v4i"/></union>
<union id="vnh"><field name="f" type="v8f"/><field name="u" type="v8u"/><field name="s" type="v8i"/></union>
<union id="vnb"><field name="u" type="v16u"/><field name="s" type="v16i"/></union>
<union id="vnq"><field name="u" type="v1u"/><field name="s" type="v1i"/></union>
<union id="aarch64v"><field name="d" type="vnd"/><field name="s" type="vns"/><field name="h" type="vnh"/>
<field name="b" type="vnb"/><field name="q" type="vnq"/></union>"#;
