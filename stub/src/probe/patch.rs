//! Bytes of ours in the program's memory, and the program's own beneath them.

use nix::errno::Errno;

use crate::sys::memory::Memory;

/// Some bytes that were exchanged for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patch {
    ours: Vec<u8>,
    original: Vec<u8>,
}

impl Patch {
    /// Writes `ours` at an address.
    pub(crate) fn place(memory: &Memory, at: u64, ours: Vec<u8>) -> Result<Patch, Errno> {
        let patch = Patch::plan(memory, at, ours)?;
        memory.write_code(at, &patch.ours)?;
        Ok(patch)
    }

    /// What is to be [`planted`](Self::replant) at an address.
    pub(crate) fn plan(memory: &Memory, at: u64, ours: Vec<u8>) -> Result<Patch, Errno> {
        let mut original = vec![0; ours.len()];
        if memory.read(at, &mut original)? < ours.len() {
            return Err(Errno::EIO);
        }
        Ok(Patch { ours, original })
    }

    /// As if `original` had been found.
    pub(crate) fn over(original: &[u8], ours: &[u8]) -> Patch {
        Patch {
            ours: ours.to_vec(),
            original: original.to_vec(),
        }
    }

    /// Our bytes.
    pub(crate) fn ours(&self) -> &[u8] {
        &self.ours
    }

    /// The program's bytes.
    pub(crate) fn original(&self) -> &[u8] {
        &self.original
    }

    /// Whether ours are still there.
    pub(crate) fn stands(&self, memory: &Memory, at: u64) -> bool {
        let mut now = vec![0; self.ours.len()];
        memory.read(at, &mut now) == Ok(self.ours.len()) && now == self.ours
    }

    /// Restores the program's bytes, unless the program itself has put others there since.
    pub(crate) fn lift(&self, memory: &Memory, at: u64) {
        if self.stands(memory, at) {
            let _ = memory.write_code(at, &self.original);
        }
    }

    /// The inverse of [`lift`](Self::lift). It fails where the page is gone, and what is to be patched with it.
    pub(crate) fn replant(&self, memory: &Memory, at: u64) -> Result<(), Errno> {
        memory.write_code(at, &self.ours)
    }

    /// Shows the program's bytes in `bytes`, read from `address`, where ours stand from `at` on.
    pub(crate) fn hide(&self, at: u64, address: u64, bytes: &mut [u8]) {
        for (index, original) in self.original.iter().enumerate() {
            if let Some(byte) = byte_of(at, index, address, bytes) {
                *byte = *original;
            }
        }
    }

    /// Takes what is about to be written at `address` as the program's bytes, and leaves ours in `bytes`.
    pub(crate) fn absorb(&mut self, at: u64, address: u64, bytes: &mut [u8]) {
        for (index, original) in self.original.iter_mut().enumerate() {
            if let Some(byte) = byte_of(at, index, address, bytes) {
                *original = *byte;
                *byte = self.ours[index];
            }
        }
    }
}

/// The byte at `at + index` of a range that begins at `address`.
fn byte_of(at: u64, index: usize, address: u64, bytes: &mut [u8]) -> Option<&mut u8> {
    let place = (at + index as u64).checked_sub(address)?;
    bytes.get_mut(usize::try_from(place).ok()?)
}
