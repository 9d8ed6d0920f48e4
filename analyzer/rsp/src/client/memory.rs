//! The target's memory, and what is planted in it.

use crate::breakpoint::Breakpoint;
use crate::client::Client;
use crate::error::Error;

impl Client {
    /// Reads memory (`x` if offered, else `m`), in as many packets as their size demands. Returns
    /// fewer bytes where memory ends before `len`; [`Error::Memory`] if not one can be read.
    pub fn read_memory(&mut self, address: u64, len: usize) -> Result<Vec<u8>, Error> {
        todo!()
    }
    /// Writes memory (`X`, else `M`).
    pub fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        todo!()
    }
    /// Inserts a breakpoint or watchpoint (`Z0` to `Z4`).
    pub fn insert_breakpoint(&mut self, breakpoint: Breakpoint) -> Result<(), Error> {
        todo!()
    }
    /// Removes it (`z0` to `z4`).
    pub fn remove_breakpoint(&mut self, breakpoint: Breakpoint) -> Result<(), Error> {
        todo!()
    }
}
