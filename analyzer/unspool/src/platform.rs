//! What differs by architecture and C library, as tables.
//!
//! Apart from `collect` and `model` because both need it, and so that they name no architecture: they
//! ask for "the stack pointer" or "the words of a mutex". A new architecture or C library is added here.

mod aarch64;
pub(crate) mod abi;
pub mod architecture;
mod arm;
pub mod c_library;
pub(crate) mod condition;
pub mod disassembler;
pub(crate) mod layouts;
pub mod syscall;
mod x86_64;

pub use architecture::Architecture;
