//! x86-64. Registers are in the format of `struct user_regs_struct` and the XSAVE area (Intel SDM
//! vol. 1, 13.4; Linux `arch/x86/include/asm/user_64.h` for the order of the general registers).

mod assembler;
pub(crate) mod call;
pub(crate) mod collector;
mod condition;
mod debug;
mod displace;
mod emulate;
mod gate;
pub(super) mod instruction;
#[cfg(test)]
pub(crate) mod stepped;
pub(crate) mod trap_handler;
pub(super) mod user_regs;

pub(crate) use debug::{can_watch, triggered, watch};

use std::ops::Range;

use super::table::{Feature, Row, Set, one};

pub(crate) use displace::displace;
pub(crate) use emulate::emulate;

/// The architecture's name in target descriptions.
pub(crate) const NAME: &str = "i386:x86-64";
/// An address in the program.
pub(crate) type Word = u64;
/// The architecture in the crate `gdbstub_arch`.
pub(crate) type Described = gdbstub_arch::x86::X86_64_SSE;
/// The bytes of `Described`'s registers at the start of a `g` packet: all up to mxcsr.
pub(crate) const DESCRIBED: [Range<usize>; 1] = [Range {
    start: 0,
    end: 0x218,
}];
/// The register sets: general, extended state.
pub(crate) const SETS: &[Set] = &[
    Set {
        note: 1, // NT_PRSTATUS
        capacity: 27 * 8,
    },
    Set {
        note: 0x202, // NT_X86_XSTATE
        capacity: 16 * 1024,
    },
];
/// Number of the program counter.
pub(crate) const PC: usize = 16;
/// The registers in the kernel's samples: their bits in the kernel's mask (`enum
/// perf_event_x86_regs`), ascending, and their numbers. The bits between are flags and segments.
pub(crate) const SAMPLED: &[(u32, usize)] = &[
    (0, 0),
    (1, 1),
    (2, 2),
    (3, 3),
    (4, 4),
    (5, 5),
    (6, 6),
    (7, 7),
    (8, PC),
    (16, 8),
    (17, 9),
    (18, 10),
    (19, 11),
    (20, 12),
    (21, 13),
    (22, 14),
    (23, 15),
];
/// The registers of a blocked thread that show its system call: rsi, rdi, rip. Samples have no
/// register with the number of the call. glibc 2.41 keeps the number on the stack, 2 to 7 words
/// above the stack pointer. The return address of `syscall`, whose caller passes the number, is
/// directly at the stack pointer in glibc, and 11 words above it in musl.
pub(crate) const BLOCKED: super::BlockedRegisters = super::BlockedRegisters {
    bits: &[4, 5, 8],
    pc: 2,
    args: [1, 0],
    number: None,
    link: None,
    futex: &[],
};
/// Maximum number of stack words in a blocked thread's sample. The frames between the system call
/// and the caller of glibc's `pthread_cond_timedwait` have 34.
pub(crate) const STACK_WORDS: usize = 36;
/// Number of the register that points to a thread's own data: fs_base.
pub(crate) const THREAD_POINTER: Option<usize> = Some(58);
/// Whether thread-local data is below the address in that register (ELF Handling for TLS, variant
/// II).
pub(crate) const TLS_BELOW_POINTER: bool = true;
/// Number of the stack pointer.
pub(crate) const SP: usize = 7;
/// Words of the general registers' set that the kernel may change by itself: orig_rax, eflags.
pub(crate) const KERNELS: &[usize] = &[15, 18];
/// Registers sent with every stop: rbp, rsp, rip.
pub(crate) const EXPEDITED: &[usize] = &[6, 7, PC];
/// Distance from a trap instruction to the program counter at its report, in bytes.
pub(crate) const TRAP_ADVANCE: u64 = 1;
/// Whether a trap may replace an instruction while other threads may execute it. Here it may: the
/// trap is one byte (Linux's `text_poke_bp` relies on this, too).
pub(crate) const TEXT_MAY_CHANGE: bool = true;
/// Whether the kernel can single-step here.
pub(crate) const CAN_STEP: bool = true;

/// Whether a word may be the address to which a function returns. The kernel maps nothing
/// below 64 KiB (vm.mmap_min_addr), nor above 47 bits unless asked to.
pub(crate) fn may_return_to(word: u64) -> bool {
    (0x1_0000..1 << 47).contains(&word)
}

/// The trap instruction for breakpoint kind `kind`.
pub(crate) fn trap(kind: usize) -> Option<&'static [u8]> {
    (kind == 1).then_some(&[0xcc])
}

/// Whether `si_code` of a `SIGTRAP` means a trap instruction. For `int3` it is `SI_KERNEL`.
pub(crate) fn is_trap_report(code: i32) -> bool {
    code == libc::SI_KERNEL
}

/// Whether an instruction makes a system call: `syscall`, `sysenter`, `int 0x80`.
pub(crate) fn is_system_call(code: &[u8], _general: &[u8]) -> bool {
    matches!(code, [0x0f, 0x05, ..] | [0x0f, 0x34, ..] | [0xcd, 0x80, ..])
}

/// Number of the system call that a thread is in: orig_rax.
pub(crate) fn system_call(general: &[u8]) -> Option<u64> {
    general
        .get(15 * 8..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

/// Whether the thread is in an interrupted system call that the kernel will restart. Its program
/// counter is then after the instruction, and its result is in rax.
pub(crate) fn goes_back(general: &[u8]) -> bool {
    let word = |index: usize| {
        let bytes = general.get(8 * index..)?.first_chunk()?;
        Some(i64::from_le_bytes(*bytes))
    };
    let in_call = word(15).is_some_and(|orig_rax| orig_rax >= 0);
    in_call && word(10).is_some_and(super::is_restart_result)
}

/// Like [`goes_back`], for a thread known to be after a system call.
pub(crate) fn was_interrupted(general: &[u8]) -> bool {
    goes_back(general)
}

/// Address and breakpoint kind of a tracepoint's trap.
pub(crate) fn place(
    address: u64,
    _general: &[u8],
    _read: &dyn Fn(u64, &mut [u8]) -> bool,
) -> (u64, usize) {
    (address, 1)
}

/// Maximum distance from an instruction to its slot, in bytes. The copy reaches its operand with a
/// signed 32-bit displacement, and the original displacement takes part of that range.
pub(crate) const SLOT_REACH: u64 = 1 << 30;

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

/// Completes a register set before it is written. XSTATE_BV must have the bits of the components to
/// load (SDM vol. 1, 13.4.2); otherwise the kernel loads their initial values.
pub(crate) fn before_write(set: usize, offset: usize, bytes: &mut [u8]) {
    const XSTATE_BV: usize = 512;
    let component = match offset {
        _ if set != EXTENDED => return,
        0..24 | 32..160 => 1 << 0, // x87
        AVX.. => 1 << 2,
        _ => 1 << 1, // SSE, MXCSR
    };
    if let Some(byte) = bytes.get_mut(XSTATE_BV) {
        *byte |= component;
    }
}

/// The table of all registers.
pub(crate) const FEATURES: &[Feature] = &[
    Feature {
        name: "org.gnu.gdb.i386.core",
        types: CORE_TYPES,
        rows: CORE,
        needs: None,
    },
    Feature {
        name: "org.gnu.gdb.i386.sse",
        types: SSE_TYPES,
        rows: &[
            one("xmm", 128, "vec128", EXTENDED, 160)
                .run(0, 16)
                .stride(16),
            one("mxcsr", 32, "i386_mxcsr", EXTENDED, 24).group("vector"),
        ],
        needs: None,
    },
    Feature {
        name: "org.gnu.gdb.i386.linux",
        types: "",
        rows: &[one("orig_rax", 64, "int", GENERAL, 15 * 8).group("system")],
        needs: None,
    },
    Feature {
        name: "org.gnu.gdb.i386.segments",
        types: "",
        rows: &[
            one("fs_base", 64, "int", GENERAL, 21 * 8),
            one("gs_base", 64, "int", GENERAL, 22 * 8),
        ],
        needs: None,
    },
    Feature {
        name: "org.gnu.gdb.i386.avx",
        types: "",
        rows: &[one("ymm", 128, "uint128", EXTENDED, AVX)
            .run(0, 16)
            .suffix("h")
            .stride(16)],
        needs: Some("avx"),
    },
];

const GENERAL: usize = 0;
const EXTENDED: usize = 1;
/// Offset of the upper halves of the ymm registers in the standard format (SDM vol. 1, 13.4.3).
const AVX: usize = 576;

const CORE: &[Row] = &[
    one("rax", 64, "int64", GENERAL, 10 * 8),
    one("rbx", 64, "int64", GENERAL, 5 * 8),
    one("rcx", 64, "int64", GENERAL, 11 * 8),
    one("rdx", 64, "int64", GENERAL, 12 * 8),
    one("rsi", 64, "int64", GENERAL, 13 * 8),
    one("rdi", 64, "int64", GENERAL, 14 * 8),
    one("rbp", 64, "data_ptr", GENERAL, 4 * 8),
    one("rsp", 64, "data_ptr", GENERAL, 19 * 8),
    one("r8", 64, "int64", GENERAL, 9 * 8),
    one("r9", 64, "int64", GENERAL, 8 * 8),
    one("r10", 64, "int64", GENERAL, 7 * 8),
    one("r11", 64, "int64", GENERAL, 6 * 8),
    one("r12", 64, "int64", GENERAL, 3 * 8),
    one("r13", 64, "int64", GENERAL, 2 * 8),
    one("r14", 64, "int64", GENERAL, 8),
    one("r15", 64, "int64", GENERAL, 0),
    one("rip", 64, "code_ptr", GENERAL, 16 * 8),
    one("eflags", 32, "i386_eflags", GENERAL, 18 * 8),
    one("cs", 32, "int32", GENERAL, 17 * 8),
    one("ss", 32, "int32", GENERAL, 20 * 8),
    one("ds", 32, "int32", GENERAL, 23 * 8),
    one("es", 32, "int32", GENERAL, 24 * 8),
    one("fs", 32, "int32", GENERAL, 25 * 8),
    one("gs", 32, "int32", GENERAL, 26 * 8),
    // The FXSAVE image, 64-bit operand size (SDM vol. 1, 10.5.1).
    one("st", 80, "i387_ext", EXTENDED, 32).run(0, 8).stride(16),
    one("fctrl", 32, "int", EXTENDED, 0)
        .stored(2)
        .group("float"),
    one("fstat", 32, "int", EXTENDED, 2)
        .stored(2)
        .group("float"),
    one("ftag", 32, "int", EXTENDED, 4)
        .stored(1)
        .tag()
        .group("float"),
    one("fiseg", 32, "int", EXTENDED, 12)
        .stored(2)
        .group("float"),
    one("fioff", 32, "int", EXTENDED, 8).group("float"),
    one("foseg", 32, "int", EXTENDED, 20)
        .stored(2)
        .group("float"),
    one("fooff", 32, "int", EXTENDED, 16).group("float"),
    one("fop", 32, "int", EXTENDED, 6).stored(2).group("float"),
];

const CORE_TYPES: &str = r#"<flags id="i386_eflags" size="4">
<field name="CF" start="0" end="0"/><field name="" start="1" end="1"/><field name="PF" start="2" end="2"/>
<field name="AF" start="4" end="4"/><field name="ZF" start="6" end="6"/><field name="SF" start="7" end="7"/>
<field name="TF" start="8" end="8"/><field name="IF" start="9" end="9"/><field name="DF" start="10" end="10"/>
<field name="OF" start="11" end="11"/><field name="NT" start="14" end="14"/><field name="RF" start="16" end="16"/>
<field name="VM" start="17" end="17"/><field name="AC" start="18" end="18"/><field name="VIF" start="19" end="19"/>
<field name="VIP" start="20" end="20"/><field name="ID" start="21" end="21"/></flags>"#;

const SSE_TYPES: &str = r#"<vector id="v4f" type="ieee_single" count="4"/><vector id="v2d" type="ieee_double" count="2"/>
<vector id="v16i8" type="int8" count="16"/><vector id="v8i16" type="int16" count="8"/>
<vector id="v4i32" type="int32" count="4"/><vector id="v2i64" type="int64" count="2"/>
<vector id="v8bf16" type="bfloat16" count="8"/>
<union id="vec128"><field name="v8_bfloat16" type="v8bf16"/><field name="v4_float" type="v4f"/>
<field name="v2_double" type="v2d"/><field name="v16_int8" type="v16i8"/><field name="v8_int16" type="v8i16"/>
<field name="v4_int32" type="v4i32"/><field name="v2_int64" type="v2i64"/><field name="uint128" type="uint128"/></union>
<flags id="i386_mxcsr" size="4"><field name="IE" start="0" end="0"/><field name="DE" start="1" end="1"/>
<field name="ZE" start="2" end="2"/><field name="OE" start="3" end="3"/><field name="UE" start="4" end="4"/>
<field name="PE" start="5" end="5"/><field name="DAZ" start="6" end="6"/><field name="IM" start="7" end="7"/>
<field name="DM" start="8" end="8"/><field name="ZM" start="9" end="9"/><field name="OM" start="10" end="10"/>
<field name="UM" start="11" end="11"/><field name="PM" start="12" end="12"/><field name="FZ" start="15" end="15"/></flags>"#;
