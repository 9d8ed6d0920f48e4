//! The facts about an architecture that the engine needs: register roles and the size of a stack
//! slot.
//!
//! One constant table per architecture. Registers have DWARF numbers.

use unspool_image::Arch;

/// Register roles for the code analysis.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) arch: Arch,
    /// Stack pointer.
    pub(crate) sp: u8,
    /// The column of the return address: the link register, or x86-64's number for the slot that
    /// `call` pushes.
    pub(crate) ra: u8,
    /// Whether calls leave the return address in register `ra`.
    pub(crate) link: bool,
    /// Registers for stating the CFA, best first, after sp.
    pub(crate) frames: &'static [u8],
    /// Callee-saved registers whose places rows state.
    pub(crate) preserved: u32,
    /// Size of a stack slot in bytes.
    pub(crate) slot: i32,
    /// Distance of sp below the CFA at a function's first instruction.
    pub(crate) entry_depth: i32,
    /// Number of registers.
    pub(crate) registers: u8,
    /// The registers of a system call's number and of its result.
    pub(crate) call_number: u8,
    pub(crate) result: u8,
    /// Numbers of the system calls that return twice: clone, clone3.
    pub(crate) forks: [u32; 2],
    /// Numbers of the system calls that return from a signal handler: sigreturn, rt_sigreturn.
    pub(crate) handled: &'static [u32],
    /// Instructions start at multiples of `1 << shift` (T32: 1).
    pub(crate) shift: u32,
}

impl Machine {
    /// Whether a register's entry value is tracked.
    pub(crate) fn follows(&self, register: u8) -> bool {
        register == self.ra || register < 32 && self.preserved >> register & 1 == 1
    }

    /// Size of the smallest instruction, as a power of two.
    pub(crate) fn shift(&self, thumb: bool) -> u32 {
        if thumb { 1 } else { self.shift }
    }

    /// Size of an address in bytes.
    pub(crate) fn pointer(&self) -> u64 {
        self.slot as u64
    }
}

static ARM: Machine = Machine {
    arch: Arch::Arm,
    sp: 13,
    ra: 14,
    link: true,
    frames: &[7, 11, 4, 5, 6, 8, 9, 10, 12],
    preserved: 0b1111_1111_0000,
    slot: 4,
    entry_depth: 0,
    registers: 16,
    call_number: 7,
    result: 0,
    // arch/arm/tools/syscall.tbl
    forks: [120, 435],
    handled: &[119, 173],
    shift: 2,
};

static AARCH64: Machine = Machine {
    arch: Arch::Aarch64,
    sp: 31,
    ra: 30,
    link: true,
    frames: &[
        29, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 9, 10, 11, 12, 13, 14, 15, 16, 17,
    ],
    // x19 to x29
    preserved: 0x3ff8_0000,
    slot: 8,
    entry_depth: 0,
    registers: 32,
    call_number: 8,
    result: 0,
    // include/uapi/asm-generic/unistd.h
    forks: [220, 435],
    handled: &[139],
    shift: 2,
};

static X86_64: Machine = Machine {
    arch: Arch::X86_64,
    sp: 7,
    ra: 16,
    link: false,
    frames: &[6, 10, 3, 12, 13, 14, 15, 0, 1, 2, 4, 5, 8, 9, 11],
    // rbx, rbp, r12 to r15
    preserved: 0b1111_0000_0100_1000,
    slot: 8,
    entry_depth: 8,
    registers: 16,
    call_number: 0,
    result: 0,
    // arch/x86/entry/syscalls/syscall_64.tbl
    forks: [56, 435],
    handled: &[15],
    shift: 0,
};

/// The table for `arch`, if its code can be analysed.
pub(crate) fn machine(arch: Arch) -> Option<&'static Machine> {
    match arch {
        Arch::Arm => Some(&ARM),
        Arch::Aarch64 => Some(&AARCH64),
        Arch::X86_64 => Some(&X86_64),
        _ => None,
    }
}
