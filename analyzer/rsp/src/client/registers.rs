//! Registers of one thread.

use crate::client::Client;
use crate::error::Error;
use crate::registers::Registers;
use crate::thread::ThreadId;

impl Client {
    /// All registers of a thread (`Hg`, `g`).
    pub fn registers(&mut self, thread: ThreadId) -> Result<Registers, Error> {
        todo!()
    }
    /// Writes one register (`P`, else `G`); `bytes` in target order.
    pub fn write_register(
        &mut self,
        thread: ThreadId,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        todo!()
    }
}
