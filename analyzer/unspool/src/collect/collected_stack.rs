//! A stack that the server sent at once, for example in a tracepoint's frame.
//!
//! Separate from `stack`, which reads a stopped thread's stack piece by piece. Nothing is read
//! here.

use unspool_capture::Chunk;
use unspool_unwind::{MemoryGap, StackMemory};

use super::stack::FIRST;

/// Bound on a stack's size. A read further away is a wrong address.
const MAX_STACK: u64 = 64 << 20;

/// Stack bytes that a server collected. Keeps the bytes that the walk read.
pub(super) struct CollectedStack {
    stack: Option<Chunk>,
    needed: usize,
    /// The walk read beyond the end.
    short: bool,
}

impl CollectedStack {
    pub(super) fn new(stack: Option<Chunk>) -> CollectedStack {
        // A stop reply contains as many bytes.
        CollectedStack::needing(stack, FIRST / 2)
    }

    /// Keeps at least `needed` bytes.
    pub(super) fn needing(stack: Option<Chunk>, needed: usize) -> CollectedStack {
        CollectedStack {
            stack,
            needed,
            short: false,
        }
    }

    /// True if the walk read beyond the end.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    pub(super) fn into_chunks(self) -> Vec<Chunk> {
        let needed = self.needed;
        let chunk = self.stack.map(|mut chunk| {
            chunk.bytes.truncate(needed);
            chunk
        });
        chunk
            .into_iter()
            .filter(|chunk| !chunk.bytes.is_empty())
            .collect()
    }
}

impl StackMemory for CollectedStack {
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap> {
        let range = self.stack.as_ref().and_then(|chunk| {
            let at = usize::try_from(avma.checked_sub(chunk.address)?).ok()?;
            let end = at.checked_add(buf.len())?;
            Some((end, chunk.bytes.get(at..end)?))
        });
        let Some((end, bytes)) = range else {
            let above = |chunk: &Chunk| {
                let end = chunk.address.saturating_add(chunk.bytes.len() as u64);
                avma.saturating_add(buf.len() as u64) > end && avma - chunk.address < MAX_STACK
            };
            let stack = self.stack.as_ref().filter(|chunk| avma >= chunk.address);
            self.short |= stack.is_some_and(above);
            return Err(MemoryGap { avma });
        };
        buf.copy_from_slice(bytes);
        self.needed = self.needed.max(end);
        Ok(())
    }
}
