//! Bytes of ours in the program's memory, and the program's own beneath them.

use nix::errno::Errno;

use crate::sys::maps;
use crate::sys::memory::Memory;

/// So many bytes behind ours tell whether ours are ours.
const CONTEXT: usize = 15;

/// Some bytes that were exchanged for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Patch {
    ours: Vec<u8>,
    original: Vec<u8>,
    /// The program's bytes after ours, if they are known.
    behind: Option<Vec<u8>>,
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

    /// As if `original` had been found.
    pub(crate) fn over(original: &[u8], ours: &[u8]) -> Patch {
        Patch {
            ours: ours.to_vec(),
            original: original.to_vec(),
            behind: None,
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
        self.lift_from(memory, at, || {
            is_executable(&maps::read(memory.process()), at)
        });
    }

    /// The same; `executable` tells whether the place can be executed, and is asked only if nothing
    /// else tells whether what looks like ours is the program's data, in memory that it has got
    /// where its text was: a trap may be one byte.
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

    /// The inverse of [`lift`](Self::lift). It fails where the page is gone, and what is to be
    /// patched with it.
    pub(crate) fn replant(&self, memory: &Memory, at: u64) -> Result<(), Errno> {
        memory.write_code(at, &self.ours)
    }

    /// Has ours be there, where else the program's are as they were. `None`: others are.
    pub(crate) fn renew(&self, memory: &Memory, at: u64) -> Option<()> {
        let mut now = vec![0; self.ours.len()];
        match memory.read(at, &mut now) {
            Ok(_) if now == self.ours => Some(()),
            Ok(_) if now == self.original => self.replant(memory, at).ok(),
            _ => None,
        }
    }

    /// Shows the program's bytes in `bytes`, read from `address`, where ours stand from `at` on.
    pub(crate) fn hide(&self, at: u64, address: u64, bytes: &mut [u8]) {
        let pairs = || self.original.iter().zip(&self.ours).enumerate();
        for (index, (_, ours)) in pairs() {
            if byte_of(at, index, address, bytes).is_some_and(|byte| byte != ours) {
                // The program has written over it.
                return;
            }
        }
        for (index, (original, _)) in pairs() {
            if let Some(byte) = byte_of(at, index, address, bytes) {
                *byte = *original;
            }
        }
    }

    /// Takes what is about to be written at `address` as the program's bytes, and leaves ours in
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

/// Whether there is text at an address, as far as `maps`, a process's list of mappings, tells.
pub(crate) fn is_executable(maps: &str, at: u64) -> bool {
    maps.is_empty() || maps::around(maps, at).is_some_and(|mapping| mapping.executable)
}

/// The byte at `at + index` of a range that begins at `address`.
fn byte_of(at: u64, index: usize, address: u64, bytes: &mut [u8]) -> Option<&mut u8> {
    let place = (at + index as u64).checked_sub(address)?;
    bytes.get_mut(usize::try_from(place).ok()?)
}
