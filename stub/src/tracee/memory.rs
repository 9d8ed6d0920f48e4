//! Accesses the program's memory as if it had no traps: reads hide them, and writes keep them.

use nix::errno::Errno;

use crate::arch;
use crate::breakpoint::condition::HitActions;
use crate::breakpoint::displaced::DisplacedInstructions;
use crate::breakpoint::table::Breakpoints;
use crate::sys::memory::Memory;
use crate::tracepoint::fast::jump_pad::JumpPads;

use super::Tracee;

impl Tracee {
    /// The memory as the program's instructions see it.
    pub(super) fn original_memory(&self) -> OriginalMemory<'_> {
        OriginalMemory {
            memory: &self.process.memory,
            breakpoints: &self.breakpoints,
            displaced: &self.displaced,
            jump_pads: &self.tracepoints.fast.jump_pads,
        }
    }

    /// Reads up to the first address that is not readable. Fails if that is `address` itself.
    pub(crate) fn read_memory(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        self.original_memory().read(address, into)
    }

    /// Writes all of `bytes`.
    pub(crate) fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut bytes = bytes.to_vec();
        self.make_way(address..address.saturating_add(bytes.len() as u64));
        self.breakpoints.absorb(address, &mut bytes);
        self.displaced.absorb(address, &mut bytes);
        self.process.memory.write(address, &bytes)
    }

    /// Inserts a breakpoint; see [`Breakpoints::plant`].
    pub(crate) fn plant(&mut self, at: u64, kind: usize, actions: HitActions) -> Result<(), Errno> {
        if self.process.has_untraced_child_inside() {
            return Err(Errno::EBUSY);
        }
        if !self.breakpoints.planted(at) {
            // The client may have seen a thread there, but not at this breakpoint.
            for thread in self.process.threads.values_mut() {
                thread.shown_at.take_if(|shown| *shown == at);
            }
        }
        self.make_way(at..at + 1);
        self.prepare_for_breakpoint(at, kind);
        self.changing_text(|tracee| {
            let memory = &tracee.process.memory;
            tracee.breakpoints.plant(memory, at, kind, actions)
        })
    }

    /// Removes a breakpoint. Fails if its memory is gone, and the breakpoint with it, because the
    /// client may want to know that.
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
    /// Reads up to the first address that is not readable. Fails if that is `address` itself.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let known = self.memory.read(address, into)?;
        self.breakpoints.hide(address, &mut into[..known]);
        self.displaced.hide(address, &mut into[..known]);
        self.jump_pads.hide(address, &mut into[..known]);
        Ok(known)
    }
}

impl arch::Memory for OriginalMemory<'_> {
    fn load(&self, address: u64, into: &mut [u8]) -> bool {
        self.read(address, into) == Ok(into.len())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> bool {
        self.memory.store(address, bytes)
    }
}
