//! The registers of one frame, by DWARF number.
//!
//! One table per architecture maps the numbers to gdb's register names and to their roles in
//! unwinding.

use unspool_image::Arch;

/// Number of DWARF registers that are stored.
pub(crate) const COUNT: usize = 40;
/// Index of the flags register (ARM `cpsr`). No DWARF register we use has this number.
pub(crate) const FLAGS: u8 = 39;

/// The roles of an architecture's registers in unwinding.
#[derive(Debug)]
pub(crate) struct Roles {
    /// Stack pointer.
    pub(crate) sp: u8,
    /// Program counter.
    pub(crate) pc: u8,
    /// Link register, where there is one.
    pub(crate) lr: Option<u8>,
    /// Return address column of CFI.
    pub(crate) ra: u8,
    /// Frame register by the architecture's convention (Thumb uses r7 instead).
    pub(crate) fp: u8,
    /// Size of an address in bytes.
    pub(crate) pointer: usize,
    /// Registers that a call preserves, so that a caller's frame may use their values unchanged.
    pub(crate) callee_saved: &'static [u8],
    /// Names, as gdb's target descriptions give them.
    names: &'static [(u8, &'static str)],
}

static X86_64: Roles = Roles {
    sp: 7,
    pc: 16,
    lr: None,
    ra: 16,
    fp: 6,
    pointer: 8,
    callee_saved: &[3, 6, 12, 13, 14, 15],
    names: &[
        (0, "rax"),
        (1, "rdx"),
        (2, "rcx"),
        (3, "rbx"),
        (4, "rsi"),
        (5, "rdi"),
        (6, "rbp"),
        (7, "rsp"),
        (8, "r8"),
        (9, "r9"),
        (10, "r10"),
        (11, "r11"),
        (12, "r12"),
        (13, "r13"),
        (14, "r14"),
        (15, "r15"),
        (16, "rip"),
        (FLAGS, "eflags"),
    ],
};

static AARCH64: Roles = Roles {
    sp: 31,
    pc: 32,
    lr: Some(30),
    ra: 30,
    fp: 29,
    pointer: 8,
    callee_saved: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
    names: &[
        (0, "x0"),
        (1, "x1"),
        (2, "x2"),
        (3, "x3"),
        (4, "x4"),
        (5, "x5"),
        (6, "x6"),
        (7, "x7"),
        (8, "x8"),
        (9, "x9"),
        (10, "x10"),
        (11, "x11"),
        (12, "x12"),
        (13, "x13"),
        (14, "x14"),
        (15, "x15"),
        (16, "x16"),
        (17, "x17"),
        (18, "x18"),
        (19, "x19"),
        (20, "x20"),
        (21, "x21"),
        (22, "x22"),
        (23, "x23"),
        (24, "x24"),
        (25, "x25"),
        (26, "x26"),
        (27, "x27"),
        (28, "x28"),
        (29, "x29"),
        (30, "x30"),
        (31, "sp"),
        (32, "pc"),
        (FLAGS, "cpsr"),
    ],
};

static ARM: Roles = Roles {
    sp: 13,
    pc: 15,
    lr: Some(14),
    ra: 14,
    fp: 11,
    pointer: 4,
    callee_saved: &[4, 5, 6, 7, 8, 9, 10, 11],
    names: &[
        (0, "r0"),
        (1, "r1"),
        (2, "r2"),
        (3, "r3"),
        (4, "r4"),
        (5, "r5"),
        (6, "r6"),
        (7, "r7"),
        (8, "r8"),
        (9, "r9"),
        (10, "r10"),
        (11, "r11"),
        (12, "r12"),
        (13, "sp"),
        (14, "lr"),
        (15, "pc"),
        (FLAGS, "cpsr"),
    ],
};

/// The address to which a function returns by this word, without ARM's Thumb bit and AArch64's
/// pointer authentication code.
#[inline(always)]
pub fn returns_to(arch: Arch, word: u64) -> u64 {
    match arch {
        Arch::Aarch64 => word & 0x0000_ffff_ffff_ffff,
        Arch::Arm => word & 0xffff_fffe,
        _ => word,
    }
}

/// The roles of `arch`'s registers.
pub(crate) fn roles(arch: Arch) -> &'static Roles {
    match arch {
        Arch::X86_64 => &X86_64,
        Arch::Aarch64 => &AARCH64,
        // `Arch` may gain variants. A new architecture gets its own table before anything unwinds
        // it.
        _ => &ARM,
    }
}

/// The known registers of one frame, by DWARF number.
#[derive(Clone, Debug)]
pub struct RegisterFile {
    arch: Arch,
    values: [u64; COUNT],
    known: u64,
}

impl RegisterFile {
    /// Asks `value` for every register, by the name in gdb's target descriptions.
    pub fn new(arch: Arch, mut value: impl FnMut(&str) -> Option<u64>) -> Self {
        let mut file = RegisterFile {
            arch,
            values: [0; COUNT],
            known: 0,
        };
        for &(number, name) in roles(arch).names {
            if let Some(value) = value(name) {
                file.set(number, value);
            }
        }
        file
    }

    /// The architecture of these registers.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The value of DWARF register `number`, if known.
    pub fn get(&self, number: u8) -> Option<u64> {
        (usize::from(number) < COUNT && self.known >> number & 1 == 1)
            .then(|| self.values[usize::from(number)])
    }

    /// Sets DWARF register `number`. Ignores numbers that are not stored.
    pub fn set(&mut self, number: u8, value: u64) {
        if usize::from(number) < COUNT {
            self.values[usize::from(number)] = value;
            self.known |= 1 << number;
        }
    }

    /// Forgets DWARF register `number`.
    pub fn forget(&mut self, number: u8) {
        if usize::from(number) < COUNT {
            self.known &= !(1 << number);
        }
    }

    /// The name of DWARF register `number` in gdb.
    pub fn name(arch: Arch, number: u8) -> Option<&'static str> {
        roles(arch)
            .names
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, name)| *name)
    }

    /// Program counter, with the Thumb bit removed on ARM.
    pub fn pc(&self) -> Option<u64> {
        let pc = self.get(roles(self.arch).pc)?;
        Some(if self.arch == Arch::Arm { pc & !1 } else { pc })
    }

    /// Stack pointer.
    pub fn sp(&self) -> Option<u64> {
        self.get(roles(self.arch).sp)
    }

    /// Whether the processor is in Thumb state: `cpsr` bit 5 (ARM ARM, B1.3.3). False elsewhere.
    pub fn thumb(&self) -> bool {
        self.arch == Arch::Arm && self.get(FLAGS).is_some_and(|cpsr| cpsr >> 5 & 1 == 1)
    }

    pub(crate) fn set_thumb(&mut self, thumb: bool) {
        let cpsr = self.get(FLAGS).unwrap_or(0) & !(1 << 5);
        self.set(FLAGS, cpsr | u64::from(thumb) << 5);
    }

    /// Forgets the registers that a call does not preserve.
    pub(crate) fn forget_volatile(&mut self) {
        let roles = roles(self.arch);
        let mut kept = 1u64 << roles.sp | 1 << roles.pc | 1 << FLAGS;
        for &number in roles.callee_saved {
            kept |= 1 << number;
        }
        self.known &= kept;
    }
}
