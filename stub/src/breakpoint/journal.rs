//! A list of the planted traps in memory that outlives this process. The guardian uses it to remove
//! them.
//!
//! The stub writes an entry before it plants the trap, and erases it after it has removed the trap.
//! The journal may thus list a trap that does not exist, but misses none. The number of entries is
//! fixed, and traps beyond it are not listed.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;

use crate::sys::Tid;
use crate::sys::fork;

use super::patch::Patch;

/// Maximum length of a trap, in bytes.
const LONGEST: usize = 4;
/// Number of words in an entry: the address; the trap and the original, four bytes each; the
/// process, with the trap's length in the lowest byte, which is 0 if there is no entry.
const WORDS: usize = 3;
const ENTRIES: usize = 8192;
/// Number of words in the header: the number of entries that have ever been in use.
const HEADER: usize = 1;

static MEMORY: OnceLock<&'static [AtomicU64]> = OnceLock::new();

/// Creates the memory. Traps planted earlier are not listed.
pub(crate) fn open() -> Result<(), Errno> {
    if MEMORY.get().is_none() {
        let _ = MEMORY.set(fork::shared_words(HEADER + WORDS * ENTRIES)?);
    }
    Ok(())
}

/// A listed trap.
pub(crate) struct Entry {
    /// The process whose memory contains the trap.
    pub(crate) process: Tid,
    pub(crate) at: u64,
    pub(crate) patch: Patch,
}

/// Reads all entries.
pub(crate) fn read() -> Vec<Entry> {
    entries().filter_map(entry).collect()
}

fn entries() -> impl Iterator<Item = &'static [AtomicU64]> {
    let memory: &'static [AtomicU64] = MEMORY.get().map_or(&[], |memory| memory);
    let used = memory
        .first()
        .map_or(0, |used| used.load(Ordering::Acquire));
    let entries = memory.get(HEADER..).unwrap_or_default();
    entries.chunks_exact(WORDS).take(used as usize)
}

fn entry(words: &[AtomicU64]) -> Option<Entry> {
    let last = words[2].load(Ordering::Acquire);
    let length = (last as u8 as usize).min(LONGEST);
    if length == 0 {
        return None;
    }
    let bytes = words[1].load(Ordering::Relaxed).to_le_bytes();
    let (ours, original) = bytes.split_at(LONGEST);
    Some(Entry {
        process: Tid((last >> 8) as i32),
        at: words[0].load(Ordering::Relaxed),
        patch: Patch::over(&original[..length], &ours[..length]),
    })
}

/// Writes the entries of the traps in one address space.
#[derive(Default)]
pub(crate) struct Journal(HashMap<u64, (&'static [AtomicU64], Tid)>);

impl Journal {
    /// Adds a trap that is about to be planted in a process's memory.
    pub(crate) fn note(&mut self, process: Tid, at: u64, patch: &Patch) {
        self.erase(at);
        let unused = |words: &&'static [AtomicU64]| words[2].load(Ordering::Relaxed) == 0;
        let words = entries().find(unused).or_else(|| {
            let memory: &'static [AtomicU64] = MEMORY.get()?;
            let used = memory[0].load(Ordering::Relaxed) as usize;
            let words = memory[HEADER..].chunks_exact(WORDS).nth(used)?;
            memory[0].store(used as u64 + 1, Ordering::Release);
            Some(words)
        });
        if let Some(words) = words
            && patch.ours().len() <= LONGEST
        {
            self.0.insert(at, (words, process));
            self.renew(at, patch);
        }
    }

    /// Updates the original bytes of a trap.
    pub(crate) fn renew(&mut self, at: u64, patch: &Patch) {
        let Some((words, process)) = self.0.get(&at) else {
            return;
        };
        let (ours, original) = (patch.ours(), patch.original());
        let mut bytes = [0; 2 * LONGEST];
        bytes[..ours.len()].copy_from_slice(ours);
        bytes[LONGEST..LONGEST + original.len()].copy_from_slice(original);
        words[0].store(at, Ordering::Relaxed);
        words[1].store(u64::from_le_bytes(bytes), Ordering::Release);
        let last = (process.0 as u64) << 8 | ours.len() as u64;
        words[2].store(last, Ordering::Release);
    }

    /// Erases a removed trap.
    pub(crate) fn erase(&mut self, at: u64) {
        if let Some((words, _)) = self.0.remove(&at) {
            words[2].store(0, Ordering::Release);
        }
    }

    /// Erases all traps.
    pub(crate) fn clear(&mut self) {
        for (_, (words, _)) in self.0.drain() {
            words[2].store(0, Ordering::Release);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_until_erased() {
        open().expect("memory");
        let patch = Patch::over(&[0x55], &[0xcc]);
        let mine = |entry: &Entry| entry.process == Tid(77);
        let read = || -> Vec<(u64, Patch)> {
            let entries = read().into_iter().filter(mine);
            entries.map(|entry| (entry.at, entry.patch)).collect()
        };
        let mut journal = Journal::default();
        journal.note(Tid(77), 0x1000, &patch);
        journal.note(Tid(77), 0x2000, &patch);
        let other = Patch::over(&[0x90], &[0xcc]);
        journal.renew(0x1000, &other);
        journal.renew(0x3000, &other);
        assert_eq!(read(), [(0x1000, other), (0x2000, patch.clone())]);
        journal.erase(0x1000);
        assert_eq!(read(), [(0x2000, patch)]);
        drop(journal);
        assert_eq!(read(), []);
    }
}
