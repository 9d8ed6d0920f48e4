//! Bytes that the stub has put into the program's memory, and the program's bytes under them.

use nix::errno::Errno;

use crate::sys::maps;
use crate::sys::memory::Memory;

/// Number of bytes after a patch to compare. If the program has changed them, the patch may not be
/// the stub's any more.
const CONTEXT: usize = 15;

/// A range of replaced bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patch {
    ours: Vec<u8>,
    original: Vec<u8>,
    /// The program's bytes after the range, if they are known.
    behind: Option<Vec<u8>>,
}

impl Patch {
    /// Writes `ours` at an address.
    pub(crate) fn place(memory: &Memory, at: u64, ours: Vec<u8>) -> Result<Patch, Errno> {
        let patch = Patch::plan(memory, at, ours)?;
        memory.write_code(at, &patch.ours)?;
        Ok(patch)
    }

    /// Reads the original bytes, and leaves it to [`replant`](Self::replant) to write `ours`.
    pub(crate) fn plan(memory: &Memory, at: u64, ours: Vec<u8>) -> Result<Patch, Errno> {
        let mut original = vec![0; ours.len() + CONTEXT];
        let known = memory.read(at, &mut original)?;
        if known < ours.len() {
            return Err(Errno::EIO);
        }
        original.truncate(known);
        let behind = original.split_off(ours.len());
        Ok(Patch {
            ours,
            original,
            behind: Some(behind),
        })
    }

    /// The same patch with the program's bytes, where the memory had a trap when it was read.
    pub(crate) fn with_original(mut self, original: &[u8]) -> Patch {
        for (byte, original) in self.original.iter_mut().zip(original) {
            *byte = *original;
        }
        self
    }

    /// A patch with these bytes; it does not read the memory.
    pub(crate) fn over(original: &[u8], ours: &[u8]) -> Patch {
        Patch {
            ours: ours.to_vec(),
            original: original.to_vec(),
            behind: None,
        }
    }

    /// The bytes that the stub writes.
    pub(crate) fn ours(&self) -> &[u8] {
        &self.ours
    }

    /// The bytes of the program.
    pub(crate) fn original(&self) -> &[u8] {
        &self.original
    }

    /// Whether the memory still contains the stub's bytes.
    pub(crate) fn stands(&self, memory: &Memory, at: u64) -> bool {
        let mut now = vec![0; self.ours.len()];
        memory.read(at, &mut now) == Ok(self.ours.len()) && now == self.ours
    }

    /// Restores the program's bytes, unless the program has written other bytes there.
    pub(crate) fn lift(&self, memory: &Memory, at: u64) {
        self.lift_from(memory, at, || {
            is_executable(&maps::read(memory.process()), at)
        });
    }

    /// Like [`lift`](Self::lift), with a function that returns whether the address is executable.
    ///
    /// It is called only if the bytes after the patch differ or are unknown. The program may then
    /// have data where its text was, and data can look like a trap, which may be one byte.
    pub(crate) fn lift_from(&self, memory: &Memory, at: u64, executable: impl FnOnce() -> bool) {
        let behind = self.behind.as_deref().unwrap_or_default();
        let mut now = vec![0; self.ours.len() + behind.len()];
        let known = memory.read(at, &mut now).unwrap_or(0);
        let Some((ours, after)) = now[..known].split_at_checked(self.ours.len()) else {
            return;
        };
        let same = self.behind.is_some() && after == behind;
        if ours == self.ours && (same || executable()) {
            let _ = memory.write_code(at, &self.original);
        }
    }

    /// The inverse of [`lift`](Self::lift). It fails if the page is gone, and then there is nothing
    /// to patch.
    pub(crate) fn replant(&self, memory: &Memory, at: u64) -> Result<(), Errno> {
        memory.write_code(at, &self.ours)
    }

    /// Like [`replant`](Self::replant), in place of a trap. Threads that run meanwhile see the trap
    /// or the whole patch.
    pub(crate) fn replant_over_trap(&self, memory: &Memory, at: u64) -> Result<(), Errno> {
        let (first, rest) = self.ours.split_at(1.min(self.ours.len()));
        memory.write_code(at + 1, rest)?;
        memory.write_code(at, first)
    }

    /// Writes the stub's bytes if the original bytes are there. `None` if other bytes are there.
    pub(crate) fn renew(&self, memory: &Memory, at: u64) -> Option<()> {
        let mut now = vec![0; self.ours.len()];
        match memory.read(at, &mut now) {
            Ok(_) if now == self.ours => Some(()),
            Ok(_) if now == self.original => self.replant(memory, at).ok(),
            _ => None,
        }
    }

    /// Puts the program's bytes into `bytes`, which were read from `address`. The patch is at `at`.
    pub(crate) fn hide(&self, at: u64, address: u64, bytes: &mut [u8]) {
        let pairs = || self.original.iter().zip(&self.ours).enumerate();
        for (index, (_, ours)) in pairs() {
            if byte_of(at, index, address, bytes).is_some_and(|byte| byte != ours) {
                // The program has overwritten the patch.
                return;
            }
        }
        for (index, (original, _)) in pairs() {
            if let Some(byte) = byte_of(at, index, address, bytes) {
                *byte = *original;
            }
        }
    }

    /// Stores the bytes to be written at `address` as the program's bytes, and puts the stub's into
    /// `bytes`.
    pub(crate) fn absorb(&mut self, at: u64, address: u64, bytes: &mut [u8]) {
        for (index, original) in self.original.iter_mut().enumerate() {
            if let Some(byte) = byte_of(at, index, address, bytes) {
                *original = *byte;
                *byte = self.ours[index];
            }
        }
    }
}

/// Whether an address is executable according to `maps`, the mappings of a process.
pub(crate) fn is_executable(maps: &str, at: u64) -> bool {
    maps.is_empty() || maps::around(maps, at).is_some_and(|mapping| mapping.executable)
}

/// The byte at `at + index` of a range that begins at `address`.
fn byte_of(at: u64, index: usize, address: u64, bytes: &mut [u8]) -> Option<&mut u8> {
    let place = (at + index as u64).checked_sub(address)?;
    bytes.get_mut(usize::try_from(place).ok()?)
}
