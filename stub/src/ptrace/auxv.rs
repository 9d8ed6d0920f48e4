//! The auxiliary vector, which the kernel passes to a program at its start.

use super::memory::number;
use super::process::Process;
use crate::arch::Word;

/// Address of the program headers.
pub(crate) const AT_PHDR: u64 = 3;
/// Number of program headers.
pub(crate) const AT_PHNUM: u64 = 5;

impl Process {
    /// The vector's bytes, as the program sees them.
    pub(crate) fn auxv(&self) -> Vec<u8> {
        self.read_proc("auxv")
    }

    /// The value of one entry.
    pub(crate) fn auxv_entry(&self, kind: u64) -> Option<u64> {
        const WORD: usize = size_of::<Word>();
        self.auxv()
            .chunks_exact(2 * WORD)
            .map(|pair| (number(&pair[..WORD]), number(&pair[WORD..])))
            .find(|(key, _)| *key == kind)
            .map(|(_, value)| value)
    }
}
