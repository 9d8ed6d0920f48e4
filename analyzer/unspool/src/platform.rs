//! What differs by architecture and C library, as tables.
//!
//! Separate from `collect` and `model` because both need it, and so that they name no architecture:
//! they ask for "the stack pointer" or "the words of a mutex". A new architecture or C library is
//! added here.

mod aarch64;
pub(crate) mod abi;
pub mod architecture;
mod arm;
pub mod c_library;
pub mod call_number;
pub(crate) mod condition;
pub mod disassembler;
pub(crate) mod layouts;
pub mod syscall;
mod x86_64;

pub use architecture::Architecture;

/// The module name of the code with which the stub records hits in the program.
pub const STUB_CODE: &str = "[unspool]";

use unspool_image::Arch;

impl Architecture {
    /// All architectures that have a table.
    pub const ALL: [&'static Architecture; 3] = [
        &x86_64::ARCHITECTURE,
        &aarch64::ARCHITECTURE,
        &arm::ARCHITECTURE,
    ];

    /// The table of an architecture.
    pub fn of(arch: Arch) -> Option<&'static Architecture> {
        Self::ALL.into_iter().find(|one| one.arch == arch)
    }

    /// The table of an architecture by gdb's name.
    pub fn by_gdb_name(name: &str) -> Option<&'static Architecture> {
        Self::of(Arch::from_gdb_name(name)?)
    }

    /// The table of the architecture that has this register and no other has.
    pub(crate) fn by_register(has: impl Fn(&str) -> bool) -> Option<&'static Architecture> {
        Self::ALL.into_iter().find(|one| has(one.own_register))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_a_table() {
        for arch in Arch::ALL {
            let table = Architecture::of(arch).expect("a table");
            let by_register = Architecture::by_register(|name| name == table.own_register);
            assert_eq!(by_register.map(|found| found.arch), Some(arch));
        }
    }

    #[test]
    fn numbers_are_the_kernels() {
        for table in Architecture::ALL {
            let calls = &table.system_call;
            let named = |number: &u64| (calls.name)(*number as usize).unwrap_or("none");
            assert_eq!(named(&calls.restart), "restart_syscall");
            assert!(
                calls
                    .futexes
                    .iter()
                    .all(|one| named(one).starts_with("futex"))
            );
            assert!(
                calls
                    .sleeps
                    .iter()
                    .all(|one| named(one).contains("nanosleep"))
            );
        }
    }
}
