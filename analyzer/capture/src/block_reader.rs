//! Reads the blocks of a capture one after another, and unpacks them.
//!
//! Separate from the reader of records, so that a thread can unpack blocks while another one
//! decodes their records. [`read_ahead`] hands them over.

use std::fmt;
use std::io::{self, Read};
use std::sync::mpsc::{channel, sync_channel};

use zstd::bulk::Decompressor;

use crate::block::{BLOCK_HEADER, BlockHeader};
use crate::reader::CutReason;

/// Maximum number of items that wait for the thread that uses them.
const READ_AHEAD_ITEMS: usize = 2;

/// An unpacked block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Length-delimited envelopes.
    pub(crate) batch: Vec<u8>,
    /// Size of the block in the file, in bytes.
    pub(crate) stored: u64,
}

/// Reads blocks, until the source ends or is damaged.
pub(crate) struct BlockReader<R> {
    source: R,
    payload: Vec<u8>,
    decompressor: Decompressor<'static>,
    /// Why there is no further block, if the source does not end after a block.
    pub(crate) damage: Option<CutReason>,
}

impl<R> fmt::Debug for BlockReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let damage = &self.damage;
        f.debug_struct("BlockReader")
            .field("damage", damage)
            .finish_non_exhaustive()
    }
}

impl<R: Read> BlockReader<R> {
    /// A reader on `source`, whose next bytes are a block.
    pub(crate) fn new(source: R) -> io::Result<BlockReader<R>> {
        Ok(BlockReader {
            source,
            payload: Vec::new(),
            decompressor: Decompressor::new()?,
            damage: None,
        })
    }

    /// Reads the next block into `block`. Returns false if there is none.
    pub(crate) fn next(&mut self, block: &mut Block) -> bool {
        self.read_block(block).unwrap_or_else(|reason| {
            self.damage = Some(reason);
            false
        })
    }

    fn read_block(&mut self, block: &mut Block) -> Result<bool, CutReason> {
        self.read(BLOCK_HEADER)?;
        if self.payload.is_empty() {
            return Ok(false);
        }
        let header: &[u8; BLOCK_HEADER] = self.payload[..]
            .try_into()
            .map_err(|_| CutReason::InBlock { missing: None })?;
        let header = BlockHeader::parse(*header)?;
        self.read(header.stored)?;
        let missing = header.stored - self.payload.len();
        if missing > 0 {
            return Err(CutReason::InBlock {
                missing: Some(missing as u64),
            });
        }
        header.unpack(&self.payload, &mut self.decompressor, &mut block.batch)?;
        block.stored = (BLOCK_HEADER + header.stored) as u64;
        Ok(true)
    }

    /// Reads up to `len` bytes. Memory is allocated as bytes arrive, never by the stated size
    /// alone.
    fn read(&mut self, len: usize) -> Result<(), CutReason> {
        self.payload.clear();
        let mut source = self.source.by_ref().take(len as u64);
        let read = source.read_to_end(&mut self.payload);
        read.map(drop)
            .map_err(|error| CutReason::Io(error.to_string()))
    }
}

/// Passes items to `visit` that another thread fills, a few items ahead. Ends when `fill` or
/// `visit` returns false. Used items are filled again, so that their memory is reused.
pub(crate) fn read_ahead<T: Default + Send>(
    mut fill: impl FnMut(&mut T) -> bool + Send,
    mut visit: impl FnMut(&mut T) -> bool,
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let (sender, filled) = sync_channel(READ_AHEAD_ITEMS);
        let (give_back, used) = channel();
        std::thread::Builder::new().spawn_scoped(scope, move || {
            loop {
                let mut item: T = used.try_recv().unwrap_or_default();
                if !fill(&mut item) || sender.send(item).is_err() {
                    break;
                }
            }
        })?;
        for mut item in filled {
            if !visit(&mut item) {
                break;
            }
            // The thread may have filled its last item.
            let _ = give_back.send(item);
        }
        Ok(())
    })
}
