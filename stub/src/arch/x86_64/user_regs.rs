//! The kernel's set of general registers (`struct user_regs_struct`) as an array of words, with
//! the index of each register.

pub(super) use super::super::words::{set_word, word};

/// Number of words of the set.
pub(super) const COUNT: usize = 27;
pub(super) const R14: usize = 1;
pub(super) const RBX: usize = 5;
pub(super) const RAX: usize = 10;
pub(super) const RCX: usize = 11;
/// The system call that the thread is in; -1 if it is in none.
pub(super) const ORIG_RAX: usize = 15;
pub(super) const RIP: usize = 16;
pub(super) const CS: usize = 17;
pub(super) const FLAGS: usize = 18;
pub(super) const RSP: usize = 19;
pub(super) const SS: usize = 20;
pub(super) const FS_BASE: usize = 21;
pub(super) const GS_BASE: usize = 22;
/// The selectors of 64-bit user code and data (Linux `arch/x86/include/asm/segment.h`).
pub(super) const USER_CS: u64 = 0x33;
pub(super) const USER_DS: u64 = 0x2b;
