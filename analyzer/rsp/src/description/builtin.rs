//! gdb's default register layouts, for servers without a description.
//!
//! One declarative table per architecture: (names, bits), in the order of the register numbers,
//! which is the order in the `g` packet. Used only if a user names the architecture, because
//! nothing in the protocol shows whether the layout is right.

use crate::description::{Register, TargetDescription};

/// The architectures, for messages.
pub(crate) const NAMES: &str = "i386:x86-64, aarch64, arm";

/// A run of registers of one size: names and bits.
type Run = (&'static [&'static str], u32);

/// gdb's `i386:x86-64` core and SSE registers, numbers 0 to 56.
const X86_64: &[Run] = &[
    (
        &[
            "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
            "r12", "r13", "r14", "r15", "rip",
        ],
        64,
    ),
    (&["eflags", "cs", "ss", "ds", "es", "fs", "gs"], 32),
    (
        &["st0", "st1", "st2", "st3", "st4", "st5", "st6", "st7"],
        80,
    ),
    (
        &[
            "fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop",
        ],
        32,
    ),
    (
        &[
            "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
            "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
        ],
        128,
    ),
    (&["mxcsr"], 32),
];

/// gdb's AArch64 core and FP/SIMD registers, numbers 0 to 67.
const AARCH64: &[Run] = &[
    (
        &[
            "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13",
            "x14", "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25",
            "x26", "x27", "x28", "x29", "x30", "sp", "pc",
        ],
        64,
    ),
    (&["cpsr"], 32),
    (
        &[
            "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
            "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25",
            "v26", "v27", "v28", "v29", "v30", "v31",
        ],
        128,
    ),
    (&["fpsr", "fpcr"], 32),
];

/// gdb's ARM registers without a description, numbers 0 to 25: the core registers, those of the FPA
/// (12 bytes each; no current processor has them), then cpsr.
const ARM: &[Run] = &[
    (
        &[
            "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "sp",
            "lr", "pc",
        ],
        32,
    ),
    (&["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"], 96),
    (&["fps", "cpsr"], 32),
];

pub(super) fn description(architecture: &str) -> Option<TargetDescription> {
    let runs = match architecture {
        "i386:x86-64" => X86_64,
        "aarch64" => AARCH64,
        "arm" => ARM,
        _ => return None,
    };
    let mut registers: Vec<Register> = runs
        .iter()
        .flat_map(|(names, bits)| names.iter().map(|name| (*name, *bits)))
        .zip(0..)
        .map(|((name, bits), number)| Register {
            name: name.to_owned(),
            number,
            bits,
            offset: 0,
            group: None,
            kind: "int".to_owned(),
            feature: String::new(),
        })
        .collect();
    super::place(&mut registers);
    Some(TargetDescription {
        architecture: Some(architecture.to_owned()),
        registers,
        ..TargetDescription::default()
    })
}
