//! The kernel's set of general registers (`struct user_pt_regs`) as an array of words: x0 to x30,
//! and the registers below.

pub(super) use super::super::words::{set_word, word};

pub(super) const SP: usize = 31;
pub(super) const PC: usize = 32;
/// The processor's state, with the flags.
pub(super) const STATE: usize = 33;
/// Number of words of the set.
pub(super) const COUNT: usize = 34;
