//! The known differences between our decoders and Capstone, each with its explanation. An entry
//! names exact mnemonics: a difference that no entry explains fails the test.

use super::Difference;
use super::capstone::Set;
use super::statement::Way;

/// A family of differences.
struct Entry {
    sets: &'static [Set],
    aspect: &'static str,
    /// Whole mnemonics, or their beginnings where they end in `*`.
    mnemonics: &'static [&'static str],
    why: &'static str,
}

const ARM: &[Set] = &[Set::A32, Set::T32];

const ENTRIES: &[Entry] = &[
    Entry {
        sets: &[Set::X86],
        aspect: "missing register",
        mnemonics: &["test", "cdq", "cqo", "cwd", "vmwrite", "stosq"],
        why: "Capstone lists a register that is only read as written",
    },
    Entry {
        sets: &[Set::A64],
        aspect: "missing register",
        mnemonics: &["cmp", "cmn", "tst", "st1", "st2", "st3", "st4"],
        why: "Capstone lists a register that is only read as written",
    },
    Entry {
        sets: &[Set::A64, Set::A32, Set::T32],
        aspect: "missing register",
        mnemonics: &["svc*"],
        why: "Capstone lists lr as written by svc, which writes the kernel's lr only",
    },
    Entry {
        sets: &[Set::A64],
        aspect: "missing register",
        mnemonics: &[
            "xpaclri", "autiasp", "autibsp", "paciasp", "pacibsp", "autiaz", "autibz",
        ],
        why: "our decoder tracks a signature in the link register apart from its value",
    },
    Entry {
        sets: &[Set::X86],
        aspect: "extra register",
        mnemonics: &[
            "cmpxchg",
            "lock cmpxchg",
            "syscall",
            "xabort",
            "rdpkru",
            "xlatb",
        ],
        why: "Capstone omits registers that the instruction writes",
    },
    Entry {
        sets: &[Set::X86],
        aspect: "extra register",
        mnemonics: &["int"],
        why: "an interrupt may be a system call, which returns a value in rax",
    },
    Entry {
        sets: &[Set::X86],
        aspect: "extra register",
        mnemonics: &["xgetbv", "xstore", "xcrypt*", "xsha*", "movsd"],
        why: "our decoder clobbers one set of registers for a whole group of opcodes",
    },
    Entry {
        sets: &[Set::X86],
        aspect: "length",
        mnemonics: &["ud0", "ud1"],
        why: "ud0 and ud1 have a ModRM byte (Intel SDM, volume 2), which Capstone leaves out",
    },
    Entry {
        sets: &[Set::X86],
        aspect: "values",
        mnemonics: &["push", "pop"],
        why: "Capstone takes a segment register for two bytes, which push and pop move as eight",
    },
    Entry {
        sets: &[Set::A64],
        aspect: "extra register",
        mnemonics: &[
            "adds", "addg", "addpl", "cas*", "cnt*", "cpy*", "fcvt*", "gmi", "irg", "ldadd*",
            "ldaxp", "ldclr*", "ldeor*", "ldg", "ldraa", "ldrab", "ldset*", "ldsmax*", "ldsmin*",
            "ldumax*", "ldumin*", "ldxp", "set*", "sq*", "stlxp", "stxp", "subg", "subps", "swp*",
            "umov", "uq*",
        ],
        why: "Capstone omits registers that the instruction writes",
    },
    Entry {
        sets: &[Set::A64],
        aspect: "extra register",
        mnemonics: &["rmif"],
        why: "our decoder clobbers one register for a whole group of opcodes",
    },
    Entry {
        sets: ARM,
        aspect: "extra register",
        mnemonics: &["mrc*", "mrrc*", "tt", "vld*", "vst*"],
        why: "Capstone omits registers that the instruction writes",
    },
    Entry {
        sets: &[Set::A32],
        aspect: "extra register",
        mnemonics: &["ldr*", "str*"],
        why: "Capstone omits the base register of a post-indexed access",
    },
    Entry {
        sets: &[Set::T32],
        aspect: "extra register",
        mnemonics: &["aes*", "sha256*"],
        why: "Capstone takes undefined encodings (f3b0 03..) for vector instructions",
    },
    Entry {
        sets: ARM,
        aspect: "values",
        mnemonics: &["orr*"],
        why: "our decoder takes `orr rd, rn, #1` for rn: bit 0 of an address selects T32",
    },
    Entry {
        sets: ARM,
        aspect: "values",
        mnemonics: &["vpush*", "vpop*", "vldm*", "vstm*"],
        why: "data: a list of no or more than 16 double registers, which is UNPREDICTABLE",
    },
];

/// Why the two decoders differ in `aspect`, if the difference is known.
pub(super) fn explanation(aspect: &str, difference: &Difference<'_>) -> Option<&'static str> {
    let entry = ENTRIES.iter().find(|entry| {
        let name = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(start) => difference.mnemonic.starts_with(start),
            None => difference.mnemonic == *pattern,
        };
        entry.sets.contains(&difference.set)
            && entry.aspect == aspect
            && entry.mnemonics.iter().any(name)
    });
    entry
        .map(|entry| entry.why)
        .or_else(|| by_operands(aspect, difference))
}

/// Differences that the operands decide.
fn by_operands(aspect: &str, difference: &Difference<'_>) -> Option<&'static str> {
    let Difference {
        set,
        mnemonic,
        operands,
        own,
        ..
    } = *difference;
    let scalable = operands
        .trim_start_matches(['{', ' '])
        .starts_with(['z', 'p']);
    match set {
        Set::X86 if mnemonic == "call" && own.way == Way::Next => {
            Some("a call of the next instruction pushes the program counter")
        }
        Set::A64 if aspect == "extra register" && scalable => {
            Some("SVE: our decoder takes every destination for a general register")
        }
        Set::A32 | Set::T32 => in_data(aspect, difference),
        _ => None,
    }
}

/// Data between ARM's functions, which both decoders read as instructions that no compiler writes.
fn in_data(aspect: &str, difference: &Difference<'_>) -> Option<&'static str> {
    /// Instructions that may jump by writing pc.
    const JUMPS: [&str; 6] = ["ldr", "ldm", "mov", "pop", "b", "add"];
    let Difference {
        set,
        mnemonic,
        operands,
        own,
        judged,
        ..
    } = *difference;
    let name = mnemonic.trim_end_matches(".w");
    if operands.contains("pc")
        && own.way != judged.way
        && (!JUMPS.contains(&name) || operands.contains("[pc") && operands.ends_with('!'))
    {
        return Some("data: an instruction that changes pc in an UNPREDICTABLE way");
    }
    if aspect == "moves" && mnemonic.starts_with("str") && operands.contains("[pc") {
        return Some("our decoder keeps pc as the base of a store, which nothing reads");
    }
    if mnemonic.starts_with("bxns") || mnemonic.starts_with("blxns") {
        return Some("data: an instruction of another profile");
    }
    if name == "b" && set == Set::T32 && matches!(own.way, Way::Branch(_)) {
        return Some("data: a conditional branch in an IT block, which is UNPREDICTABLE");
    }
    if aspect == "condition" && set == Set::T32 {
        return Some("data: an IT block in an IT block, or one that a jump leads into");
    }
    None
}
