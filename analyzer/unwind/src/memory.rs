//! Target memory as the walker sees it.
//!
//! It is a trait, so that the same code unwinds a stored snapshot and memory fetched from a live
//! target.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// A read touched memory that is missing: outside the snapshot, or unmapped in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryGap {
    /// The first missing address.
    pub avma: u64,
}

impl fmt::Display for MemoryGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory at {:#x} in the snapshot", self.avma)
    }
}

impl core::error::Error for MemoryGap {}

/// Stack memory: a snapshot, or live memory fetched on demand.
pub trait StackMemory {
    /// Fills `buf` from `avma`, completely or not at all.
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap>;

    /// Reads one pointer of `size` bytes (at most 8), little-endian.
    fn read_pointer(&mut self, avma: u64, size: usize) -> Result<u64, MemoryGap> {
        let mut bytes = [0u8; 8];
        self.read(avma, &mut bytes[..size.min(8)])?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// One borrowed piece of memory: the stack from sp upward, as a profiler or a tracepoint copies it.
#[derive(Clone, Copy, Debug)]
pub struct StackSlice<'a> {
    /// Address of the first byte.
    pub avma: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl StackMemory for StackSlice<'_> {
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap> {
        let bytes = usize::try_from(avma.wrapping_sub(self.avma))
            .ok()
            .and_then(|skip| self.bytes.get(skip..)?.get(..buf.len()))
            .ok_or(MemoryGap { avma })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn read_pointer(&mut self, avma: u64, size: usize) -> Result<u64, MemoryGap> {
        let bytes = usize::try_from(avma.wrapping_sub(self.avma))
            .ok()
            .and_then(|skip| self.bytes.get(skip..));
        let value = match size {
            4 => bytes
                .and_then(|bytes| bytes.first_chunk::<4>())
                .map(|bytes| u32::from_le_bytes(*bytes).into()),
            8 => bytes
                .and_then(|bytes| bytes.first_chunk::<8>())
                .map(|bytes| u64::from_le_bytes(*bytes)),
            _ => None,
        };
        value.ok_or(MemoryGap { avma })
    }
}

/// Pieces of target memory, by address.
#[derive(Clone, Debug, Default)]
pub struct SnapshotMemory {
    chunks: BTreeMap<u64, Vec<u8>>,
}

impl SnapshotMemory {
    /// A snapshot without any memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the bytes seen at `avma`. Pieces may touch or overlap. A read must lie in one piece, or
    /// in pieces that follow each other without a gap.
    pub fn insert(&mut self, avma: u64, bytes: Vec<u8>) {
        match self.chunks.get(&avma) {
            Some(old) if old.len() >= bytes.len() => {}
            _ => {
                self.chunks.insert(avma, bytes);
            }
        }
    }
}

impl StackMemory for SnapshotMemory {
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap> {
        let mut done = 0usize;
        while done < buf.len() {
            let at = avma.checked_add(done as u64).ok_or(MemoryGap { avma })?;
            let (start, bytes) = self
                .chunks
                .range(..=at)
                .next_back()
                .ok_or(MemoryGap { avma: at })?;
            let rest = usize::try_from(at - start)
                .ok()
                .and_then(|skip| bytes.get(skip..))
                .filter(|rest| !rest.is_empty())
                .ok_or(MemoryGap { avma: at })?;
            let take = rest.len().min(buf.len() - done);
            buf[done..done + take].copy_from_slice(&rest[..take]);
            done += take;
        }
        Ok(())
    }
}

/// Reads one pointer of `size` bytes, little-endian.
pub(crate) fn read_pointer(
    memory: &mut dyn StackMemory,
    avma: u64,
    size: usize,
) -> Result<u64, MemoryGap> {
    memory.read_pointer(avma, size)
}
