//! The program's memory as its author wrote it: traps are neither seen nor lost.

use nix::errno::Errno;

use crate::arch;
use crate::breakpoint::condition::HitActions;
use crate::breakpoint::displaced::DisplacedInstructions;
use crate::breakpoint::table::Breakpoints;
use crate::sys::memory::Memory;
use crate::tracepoint::fast::jump_pad::JumpPads;

use super::Tracee;

impl Tracee {
    /// Reads up to the first address that is not readable; fails if that is the first.
    pub(crate) fn read_memory(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let done = self.process.memory.read(address, into)?;
        self.hide(address, &mut into[..done]);
        Ok(done)
    }

    /// Shows the program's bytes where ours are, in `bytes` read from `address`.
    fn hide(&self, address: u64, bytes: &mut [u8]) {
        self.breakpoints.hide(address, bytes);
        self.displaced.hide(address, bytes);
        self.tracepoints.fast.jump_pads.hide(address, bytes);
    }

    /// Writes all of `bytes`.
    pub(crate) fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut bytes = bytes.to_vec();
        self.make_way(address..address.saturating_add(bytes.len() as u64));
        self.breakpoints.absorb(address, &mut bytes);
        self.displaced.absorb(address, &mut bytes);
        self.process.memory.write(address, &bytes)
    }

    /// Plants a breakpoint; see [`Breakpoints::plant`].
    pub(crate) fn plant(&mut self, at: u64, kind: usize, actions: HitActions) -> Result<(), Errno> {
        if !self.breakpoints.planted(at) {
            // A thread that the client has seen there has not been seen at this breakpoint.
            for thread in self.process.threads.values_mut() {
                thread.shown_at.take_if(|shown| *shown == at);
            }
        }
        self.make_way(at..at + 1);
        self.changing_text(|tracee| {
            let memory = &tracee.process.memory;
            tracee.breakpoints.plant(memory, at, kind, actions)
        })
    }

    /// Removes a breakpoint. An error: it is gone already, with the memory that it was in, which
    /// the client may want to know.
    pub(crate) fn unplant(&mut self, at: u64) -> Result<(), Errno> {
        let planted = self.breakpoints.planted(at);
        self.changing_text(|tracee| tracee.breakpoints.remove(&tracee.process.memory, at));
        match self.process.memory.read(at, &mut [0]) {
            Ok(0) if planted => Err(Errno::EFAULT),
            Err(error) if planted => Err(error),
            _ => Ok(()),
        }
    }
}

/// The memory as the program's instructions see it.
pub(super) struct OriginalMemory<'a> {
    pub(super) memory: &'a Memory,
    pub(super) breakpoints: &'a Breakpoints,
    pub(super) displaced: &'a DisplacedInstructions,
    pub(super) jump_pads: &'a JumpPads,
}

impl OriginalMemory<'_> {
    /// Reads up to the first address that is not readable; how many bytes that was.
    pub(super) fn load_some(&self, address: u64, into: &mut [u8]) -> usize {
        let known = self.memory.read(address, into).unwrap_or(0);
        self.breakpoints.hide(address, &mut into[..known]);
        self.displaced.hide(address, &mut into[..known]);
        self.jump_pads.hide(address, &mut into[..known]);
        known
    }
}

impl arch::Memory for OriginalMemory<'_> {
    fn load(&self, address: u64, into: &mut [u8]) -> bool {
        self.load_some(address, into) == into.len()
    }

    fn store(&self, address: u64, bytes: &[u8]) -> bool {
        self.memory.store(address, bytes)
    }
}
