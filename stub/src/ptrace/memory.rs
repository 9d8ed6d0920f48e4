//! Reads numbers and strings that the kernel and the dynamic linker keep in the program's memory.
//!
//! These are data without traps, so reads bypass the layer that hides traps.

use super::process::Process;

impl Process {
    /// Reads an unsigned number of `size` bytes.
    pub(super) fn read_number(&self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let done = self.memory.read(address, &mut bytes[..size]).ok()?;
        (done == size).then(|| u64::from_le_bytes(bytes))
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
