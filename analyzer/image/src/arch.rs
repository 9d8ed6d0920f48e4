//! The supported architectures, and their names in ELF files and in gdb.
//!
//! Apart because every crate of the analyzer depends on it. The architecture is a property of the
//! target, never of the host.

use core::fmt;

/// An instruction set and its ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Arch {
    /// 64-bit x86, System V ABI.
    X86_64,
    /// 64-bit ARM, A64 instructions.
    Aarch64,
    /// 32-bit ARM EABI, A32 and T32 instructions.
    Arm,
}

impl Arch {
    /// All architectures known here.
    pub const ALL: [Arch; 3] = [Arch::X86_64, Arch::Aarch64, Arch::Arm];

    /// The architecture of `e_machine` in an ELF header (`EM_ARM` 40, `EM_X86_64` 62, `EM_AARCH64`
    /// 183).
    pub fn from_elf_machine(machine: u16) -> Option<Arch> {
        match machine {
            62 => Some(Arch::X86_64),
            183 => Some(Arch::Aarch64),
            40 => Some(Arch::Arm),
            _ => None,
        }
    }

    /// The architecture of `<architecture>` in a gdb target description, such as `i386:x86-64` or
    /// `armv7`.
    pub fn from_gdb_name(name: &str) -> Option<Arch> {
        match name {
            "i386:x86-64" | "i386:x86-64:intel" => Some(Arch::X86_64),
            "aarch64" | "aarch64:armv8-r" => Some(Arch::Aarch64),
            _ if name == "arm" || name.starts_with("armv") || name.starts_with("arm_") => {
                Some(Arch::Arm)
            }
            _ => None,
        }
    }

    /// gdb's name, as `set architecture` accepts it.
    pub fn gdb_name(self) -> &'static str {
        match self {
            Arch::X86_64 => "i386:x86-64",
            Arch::Aarch64 => "aarch64",
            Arch::Arm => "arm",
        }
    }

    /// Our name, as output shows it.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Arm => "arm",
        }
    }

    /// Size of an address in bytes.
    pub fn address_size(self) -> usize {
        match self {
            Arch::X86_64 | Arch::Aarch64 => 8,
            Arch::Arm => 4,
        }
    }

    /// Debian's multiarch directories of this architecture, below `/lib` and `/usr/lib`.
    #[cfg(feature = "std")]
    pub(crate) fn multiarch_directories(self) -> &'static [&'static str] {
        match self {
            Arch::X86_64 => &["x86_64-linux-gnu"],
            Arch::Aarch64 => &["aarch64-linux-gnu"],
            Arch::Arm => &["arm-linux-gnueabihf", "arm-linux-gnueabi"],
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
