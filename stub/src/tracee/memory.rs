//! The program's memory as its author wrote it: traps are neither seen nor lost.

use nix::errno::Errno;

use super::Process;

impl Process {
    /// Reads up to the first address that is not readable; fails if that is the first.
    pub(crate) fn read_memory(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let done = self.memory.read(address, into)?;
        self.breakpoints.hide(address, &mut into[..done]);
        Ok(done)
    }

    /// Writes all of `bytes`.
    pub(crate) fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut bytes = bytes.to_vec();
        self.breakpoints.absorb(address, &mut bytes);
        self.memory.write(address, &bytes)
    }

    /// Reads an unsigned number of `size` bytes.
    pub(crate) fn read_number(&self, address: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        let done = self.read_memory(address, &mut bytes[..size]).ok()?;
        (done == size).then(|| u64::from_le_bytes(bytes))
    }

    /// Reads a NUL-terminated string of at most `limit` bytes.
    pub(crate) fn read_string(&self, address: u64, limit: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; limit];
        let done = self.read_memory(address, &mut bytes).ok()?;
        bytes.truncate(done);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        bytes.truncate(end);
        Some(bytes)
    }

    /// Plants a breakpoint.
    pub(crate) fn plant(&mut self, at: u64, kind: usize) -> Result<(), Errno> {
        self.breakpoints.plant(&self.memory, at, kind)
    }

    /// Removes a breakpoint.
    pub(crate) fn unplant(&mut self, at: u64) {
        self.breakpoints.remove(&self.memory, at);
    }
}
