//! Reads a live thread's stack as an unwinder requests it, and keeps all bytes read.
//!
//! The stack is sparse: a 1 MB frame costs two reads, and a snapshot holds only the bytes that the
//! walk needed.

use unspool_capture::Chunk;
use unspool_rsp::Client;
use unspool_unwind::{MemoryGap, StackMemory};

/// Bytes of the first read, at the stack pointer. Most creation paths are shorter, and one reply of
/// a server with small packets can hold them.
pub(super) const FIRST: usize = 2048;
/// Bytes of each later read. Deep stacks need only a few round trips.
const MORE: usize = 8192;
/// Limits, in bytes and in reads, for memory that is not a stack.
const TOTAL_LIMIT: usize = 8 << 20;
const FETCH_LIMIT: usize = 4096;

/// Stack memory of one stopped thread.
pub(super) struct LiveStack<'a> {
    client: &'a mut Client,
    chunks: Vec<Chunk>,
    total: usize,
    fetches: usize,
}

impl<'a> LiveStack<'a> {
    /// A stack whose inner part `first` has already been read.
    pub(super) fn new(client: &'a mut Client, first: Option<Chunk>) -> Self {
        let chunks: Vec<Chunk> = first
            .into_iter()
            .filter(|chunk| !chunk.bytes.is_empty())
            .collect();
        let total = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        Self {
            client,
            chunks,
            total,
            fetches: 0,
        }
    }

    /// All bytes read.
    pub(super) fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }

    /// The known contiguous bytes from `avma` on.
    fn known(&self, avma: u64) -> Option<&[u8]> {
        self.chunks.iter().find_map(|chunk| {
            let at = usize::try_from(avma.checked_sub(chunk.address)?).ok()?;
            chunk.bytes.get(at..).filter(|bytes| !bytes.is_empty())
        })
    }

    fn fetch(&mut self, avma: u64) -> bool {
        if self.fetches >= FETCH_LIMIT || self.total >= TOTAL_LIMIT {
            return false;
        }
        self.fetches += 1;
        // Stop before bytes that are already known, so that none is kept twice.
        let next = self
            .chunks
            .iter()
            .map(|chunk| chunk.address)
            .filter(|at| *at > avma)
            .min();
        let room = next.map_or(MORE, |next| {
            usize::try_from(next - avma).unwrap_or(MORE).min(MORE)
        });
        // The stack may end within the range. A missing page must not prevent reading the pages
        // before.
        let to_page_end = 4096 - usize::try_from(avma % 4096).unwrap_or(0);
        let bytes = match self.client.read_memory(avma, room) {
            Ok(bytes) if !bytes.is_empty() => bytes,
            _ if to_page_end < room => match self.client.read_memory(avma, to_page_end) {
                Ok(bytes) if !bytes.is_empty() => bytes,
                _ => return false,
            },
            _ => return false,
        };
        self.total += bytes.len();
        match self
            .chunks
            .iter_mut()
            .find(|chunk| chunk.address.wrapping_add(chunk.bytes.len() as u64) == avma)
        {
            Some(before) => before.bytes.extend_from_slice(&bytes),
            None => self.chunks.push(Chunk {
                address: avma,
                bytes,
            }),
        }
        true
    }
}

impl StackMemory for LiveStack<'_> {
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap> {
        let mut done = 0;
        while done < buf.len() {
            let at = avma.checked_add(done as u64).ok_or(MemoryGap { avma })?;
            if let Some(bytes) = self.known(at) {
                let count = bytes.len().min(buf.len() - done);
                buf[done..done + count].copy_from_slice(&bytes[..count]);
                done += count;
            } else if !self.fetch(at) {
                return Err(MemoryGap { avma: at });
            }
        }
        Ok(())
    }
}
