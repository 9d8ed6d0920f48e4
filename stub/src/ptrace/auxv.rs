//! The auxiliary vector, which the kernel passes to a program at its start.

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
        let word = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..WORD].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        };
        self.auxv()
            .chunks_exact(2 * WORD)
            .map(|pair| (word(&pair[..WORD]), word(&pair[WORD..])))
            .find(|(key, _)| *key == kind)
            .map(|(_, value)| value)
    }
}
