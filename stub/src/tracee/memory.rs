//! The program's memory as its author wrote it: traps are neither seen nor lost.

use nix::errno::Errno;

use crate::arch;
use crate::breakpoint::displaced::DisplacedInstructions;
use crate::sys::memory::Memory;
use crate::tracepoint::fast::jump_pad::JumpPads;

use super::Tracee;
use crate::breakpoint::table::{Breakpoints, Terms};

impl Tracee {
    /// Reads up to the first address that is not readable; fails if that is the first.
    pub(crate) fn read_memory(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let done = self.memory.read(address, into)?;
        self.hide(address, &mut into[..done]);
        Ok(done)
    }

    /// Shows the program's bytes where ours are, in `bytes` read from `address`.
    fn hide(&self, address: u64, bytes: &mut [u8]) {
        self.breakpoints.hide(address, bytes);
        self.displaced.hide(address, bytes);
        self.jump_pads.hide(address, bytes);
    }

    /// Writes all of `bytes`.
    pub(crate) fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut bytes = bytes.to_vec();
        self.make_way(address..address.saturating_add(bytes.len() as u64));
        self.breakpoints.absorb(address, &mut bytes);
        self.displaced.absorb(address, &mut bytes);
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

    /// Plants a breakpoint; see [`Breakpoints::plant`].
    pub(crate) fn plant(&mut self, at: u64, kind: usize, terms: Terms) -> Result<(), Errno> {
        if !self.breakpoints.planted(at) {
            // Who was shown there has not been shown this one.
            for thread in self.threads.values_mut() {
                thread.shown_at.take_if(|shown| *shown == at);
            }
        }
        self.make_way(at..at + 1);
        self.changing_text(|process| {
            let memory = &process.memory;
            process.breakpoints.plant(memory, at, kind, terms)
        })
    }

    /// Removes a breakpoint. An error: it is gone already, with the memory that it was in, which the client may want to know.
    pub(crate) fn unplant(&mut self, at: u64) -> Result<(), Errno> {
        let planted = self.breakpoints.planted(at);
        self.changing_text(|process| process.breakpoints.remove(&process.memory, at));
        match self.memory.read(at, &mut [0]) {
            Ok(0) if planted => Err(Errno::EFAULT),
            Err(error) if planted => Err(error),
            _ => Ok(()),
        }
    }
}

/// The memory as the program's instructions see it.
pub(super) struct Seen<'a> {
    pub(super) memory: &'a Memory,
    pub(super) breakpoints: &'a Breakpoints,
    pub(super) displaced: &'a DisplacedInstructions,
    pub(super) jump_pads: &'a JumpPads,
}

impl Seen<'_> {
    /// Reads up to the first address that is not readable; how many bytes that was.
    pub(super) fn load_some(&self, address: u64, into: &mut [u8]) -> usize {
        let known = self.memory.read(address, into).unwrap_or(0);
        self.breakpoints.hide(address, &mut into[..known]);
        self.displaced.hide(address, &mut into[..known]);
        self.jump_pads.hide(address, &mut into[..known]);
        known
    }
}

impl arch::Memory for Seen<'_> {
    fn load(&self, address: u64, into: &mut [u8]) -> bool {
        self.load_some(address, into) == into.len()
    }

    fn store(&self, address: u64, bytes: &[u8]) -> bool {
        self.memory.store(address, bytes)
    }
}
