//! Reads numbers and strings that the kernel and the dynamic linker keep in the program's memory.
//!
//! These are data without traps, so reads bypass the layer that hides traps.

use super::process::Process;
use crate::arch::Word;

const WORD: usize = size_of::<Word>();

/// An unsigned number of at most 8 bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

impl Process {
    /// Reads an unsigned number of `size` bytes.
    pub(super) fn read_number(&self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let done = self.memory.read(address, &mut bytes[..size]).ok()?;
        (done == size).then(|| number(&bytes[..size]))
    }

    /// Reads `N` words that follow each other.
    pub(super) fn read_words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let bytes = self.read_bytes(address, N * WORD)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(WORD)) {
            *word = number(bytes);
        }
        Some(words)
    }

    /// Reads exactly `size` bytes.
    pub(super) fn read_bytes(&self, address: u64, size: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; size];
        (self.memory.read(address, &mut bytes).ok()? == size).then_some(bytes)
    }

    /// Reads a NUL-terminated string of at most `limit` bytes.
    pub(super) fn read_string(&self, address: u64, limit: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; limit];
        let done = self.memory.read(address, &mut bytes).ok()?;
        bytes.truncate(done);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        bytes.truncate(end);
        Some(bytes)
    }
}
