//! Reads a capture block by block, and detects damage.
//!
//! Damage after the file header is a [`Cut`] and no error: everything before it is valid and is
//! returned. Sizes are checked before memory is allocated for them.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};

use crate::block::{self, FILE_HEADER, MAJOR_VERSION};
use crate::block_reader::{Block, BlockReader};
use crate::calls::CallSummary;
use crate::record::{Event, Record};

/// Maximum number of processes of one recording after the first one. Records of further ones are
/// skipped like those of unknown kinds.
pub const MAX_FURTHER_PROCESSES: u32 = 255;

/// The capture cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened.
    #[error("cannot open the recording {path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file could not be read.
    #[error("cannot read the recording: {0}")]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("the file is empty because the recording wrote nothing; record again")]
    Empty,
    /// The file is not a capture.
    #[error(
        "not an Unspool recording: the file does not begin with \"UNSPOOL\"; give a file written by `unspool record`"
    )]
    NotACapture,
    /// The file is a capture, but its header is damaged.
    #[error(
        "the recording's file header is damaged (bad checksum); copy the file again or record again"
    )]
    HeaderDamaged,
    /// The file has changed since it was opened.
    #[error("the recording changed while it was read; read it again when no program writes to it")]
    Changed,
    /// The major version is unknown to this program.
    #[error(
        "the recording has format version {major}.{minor}, this program reads version {MAJOR_VERSION}.x; open it with an Unspool that reads version {major}"
    )]
    Version {
        /// Major version of the file.
        major: u16,
        /// Minor version of the file.
        minor: u16,
    },
}

/// The place where a capture becomes unreadable, or its end if the recording was not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Everything before this offset in the file is valid.
    pub offset: u64,
    /// The problem at that offset.
    pub reason: CutReason,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut at byte {}: {}", self.offset, self.reason)
    }
}

/// The reason for a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutReason {
    /// All blocks are complete, but the recording was not finished.
    NoEnd,
    /// The file ends inside its header.
    InFileHeader,
    /// The file ends inside a block.
    InBlock {
        /// Number of missing bytes, if the block's header is complete.
        missing: Option<u64>,
    },
    /// The bytes are not a block.
    NoBlock,
    /// A block's size exceeds the limit.
    BlockTooLarge {
        /// The size.
        size: u64,
    },
    /// A block's checksum is wrong.
    Checksum,
    /// A block has unknown flags.
    UnknownFlags {
        /// The flags.
        flags: u32,
    },
    /// A block does not decompress to its stated size.
    Compression,
    /// A block's records are malformed.
    Record,
    /// Reading failed.
    Io(String),
    /// The capture is too large for memory.
    TooLarge,
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutReason::NoEnd => f.write_str("the recording was killed, or is still running"),
            CutReason::InFileHeader => f.write_str("the file ends inside its header"),
            CutReason::InBlock { missing: None } => f.write_str("the file ends inside a block"),
            CutReason::InBlock {
                missing: Some(missing),
            } => write!(
                f,
                "the file ends inside a block ({missing} bytes are missing)"
            ),
            CutReason::NoBlock => f.write_str("the next bytes are not a block of a recording"),
            CutReason::BlockTooLarge { size } => {
                write!(
                    f,
                    "a block claims {size} bytes, more than any writer writes"
                )
            }
            CutReason::Checksum => f.write_str("a block is damaged (its checksum is wrong)"),
            CutReason::UnknownFlags { flags } => {
                write!(
                    f,
                    "a block needs a newer version of Unspool (flags {flags:#x})"
                )
            }
            CutReason::Compression => f.write_str("a block is damaged (it does not decompress)"),
            CutReason::Record => f.write_str("a block is damaged (its records are malformed)"),
            CutReason::Io(error) => write!(f, "reading failed: {error}"),
            CutReason::TooLarge => f.write_str("the rest is too large to open at once"),
        }
    }
}

/// Reads a capture record by record, with one block in memory at a time.
#[derive(Debug)]
pub struct Reader<R: io::Read> {
    pub(crate) blocks: BlockReader<R>,
    pub(crate) decoder: Decoder,
    block: Block,
    ready: std::vec::IntoIter<Record>,
}

impl<R: io::Read> Reader<R> {
    /// A reader on `source` for the records of the first process. Checks the file header.
    pub fn new(source: R) -> Result<Reader<R>, ReadError> {
        Reader::of_process(source, 0)
    }

    /// A reader for the records of the process with this number.
    pub fn of_process(mut source: R, process: u32) -> Result<Reader<R>, ReadError> {
        let mut header = Vec::new();
        source
            .by_ref()
            .take(FILE_HEADER as u64)
            .read_to_end(&mut header)?;
        let whole = block::check_file_header(&header)?;
        let mut decoder = Decoder {
            offset: header.len() as u64,
            process,
            ..Decoder::default()
        };
        if !whole {
            decoder.stop(CutReason::InFileHeader);
        }
        Ok(Reader {
            blocks: BlockReader::new(source)?,
            decoder,
            block: Block::default(),
            ready: Vec::new().into_iter(),
        })
    }

    /// The cut, if there is one. Valid after the last record.
    pub fn cut(&self) -> Option<&Cut> {
        self.decoder.cut()
    }

    /// Number of records of unknown kinds skipped so far.
    pub fn unknown(&self) -> u64 {
        self.decoder.unknown
    }

    /// Replaces `records` by those of the next block that has any, and reuses their memory. Returns
    /// false if there is none.
    pub(crate) fn fill(&mut self, records: &mut Vec<Record>) -> bool {
        while self.decoder.stop.is_none() {
            if !self.blocks.next(&mut self.block) {
                self.decoder.finish(self.blocks.damage.take());
            } else if self.decoder.decode(&self.block, records) && !records.is_empty() {
                return true;
            }
        }
        false
    }
}

impl<R: io::Read> Iterator for Reader<R> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.ready.len() == 0 {
            let mut records = Vec::new();
            self.fill(&mut records);
            self.ready = records.into_iter();
        }
        self.ready.next()
    }
}

/// Decodes the records of one block after another.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Everything before this offset has been decoded.
    pub(crate) offset: u64,
    /// Size of the returned records in bytes.
    pub(crate) given: u64,
    /// Number of returned records.
    count: usize,
    /// If set, call events are gathered here instead of being returned.
    pub(crate) gathering: Option<CallSummary>,
    /// Number of skipped records of unknown kinds.
    pub(crate) unknown: u64,
    /// The number of the process whose records are returned.
    process: u32,
    /// The numbers of further processes that have records.
    pub(crate) further: BTreeSet<u32>,
    ended: bool,
    /// Set when there is nothing more to decode, with the cut if there is one.
    stop: Option<Option<Cut>>,
}

impl Decoder {
    /// The cut, if there is one.
    pub(crate) fn cut(&self) -> Option<&Cut> {
        self.stop.as_ref().and_then(Option::as_ref)
    }

    /// Stops decoding.
    pub(crate) fn stop(&mut self, reason: CutReason) {
        let offset = self.offset;
        self.stop = Some(Some(Cut { offset, reason }));
    }

    /// There is no further block, perhaps because of a damage.
    pub(crate) fn finish(&mut self, damage: Option<CutReason>) {
        let open = (!self.ended).then_some(CutReason::NoEnd);
        match damage.or(open) {
            _ if self.stop.is_some() => {}
            Some(reason) => self.stop(reason),
            None => self.stop = Some(None),
        }
    }

    /// Replaces `records` by those of a block, and reuses their memory. Returns false if the block
    /// is damaged; it then has no records.
    pub(crate) fn decode(&mut self, block: &Block, records: &mut Vec<Record>) -> bool {
        let decoded = self.decode_batch(&block.batch, records);
        let count = decoded.as_ref().map_or(0, |count| *count);
        records.truncate(count);
        if let Err(reason) = decoded {
            self.stop(reason);
            return false;
        }
        self.ended |= records.iter().any(|r| matches!(r, Record::End(_)));
        self.count += count;
        self.offset += block.stored;
        true
    }

    /// Decodes envelopes into the first elements of `records`, and returns their number.
    fn decode_batch(
        &mut self,
        mut batch: &[u8],
        records: &mut Vec<Record>,
    ) -> Result<usize, CutReason> {
        let mut count = 0;
        while !batch.is_empty() {
            let mut envelope = block::next_envelope(&mut batch)?;
            let inner = block::part_of(envelope)?;
            match &inner {
                None if self.process == 0 => {}
                None => continue,
                Some((process @ 1..=MAX_FURTHER_PROCESSES, inner)) => {
                    self.further.insert(*process);
                    if *process != self.process {
                        continue;
                    }
                    envelope = inner;
                }
                Some(_) => {
                    self.unknown += 1;
                    continue;
                }
            }
            if self.is_gathered(envelope, self.count + count)? {
                continue;
            }
            if count == records.len() {
                records.push(Record::Event(Event::default()));
            }
            let record = &mut records[count];
            if !block::record_into(envelope, record)? {
                self.unknown += 1;
                continue;
            }
            if let Some(gathering) = &mut self.gathering {
                gathering.keep(record);
            }
            self.given += envelope.len() as u64;
            count += 1;
        }
        Ok(count)
    }

    /// Whether the envelope is a call event, which is then gathered. `before` is the number of
    /// records before it.
    fn is_gathered(&mut self, envelope: &[u8], before: usize) -> Result<bool, CutReason> {
        let Some(gathering) = &mut self.gathering else {
            return Ok(false);
        };
        let Some(head) = block::event_head(envelope) else {
            return Ok(false);
        };
        if !gathering.declared.is_of_calls(head.probe) {
            return Ok(false);
        }
        let at = before.saturating_sub(1);
        if gathering.skip(at, head)
            && let Some(Record::Event(event)) = block::record(envelope)?
        {
            gathering.first(at, event);
        }
        Ok(true)
    }
}
