//! Reads a capture block by block, and detects damage.
//!
//! Damage after the file header is a [`Cut`] and no error: everything before it is valid and is
//! returned. Sizes are checked before memory is allocated for them.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read};

use crate::block::{self, BLOCK_HEADER, BlockHeader, FILE_HEADER, MAJOR_VERSION};
use crate::calls::CallSummary;
use crate::record::Record;

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
    source: R,
    offset: u64,
    /// Size of the returned records in bytes.
    pub(crate) given: u64,
    /// Number of returned records.
    count: usize,
    /// If set, call events are gathered here instead of being returned.
    pub(crate) gathering: Option<CallSummary>,
    ready: VecDeque<Record>,
    unknown: u64,
    ended: bool,
    /// Set when there is nothing more to read, with the cut if there is one.
    stop: Option<Option<Cut>>,
}

impl<R: io::Read> Reader<R> {
    /// A reader on `source`. Checks the file header.
    pub fn new(mut source: R) -> Result<Reader<R>, ReadError> {
        let mut header = Vec::new();
        source
            .by_ref()
            .take(FILE_HEADER as u64)
            .read_to_end(&mut header)?;
        let whole = block::check_file_header(&header)?;
        let offset = header.len() as u64;
        let cut = Cut {
            offset,
            reason: CutReason::InFileHeader,
        };
        Ok(Reader {
            source,
            offset,
            given: 0,
            count: 0,
            gathering: None,
            ready: VecDeque::new(),
            unknown: 0,
            ended: false,
            stop: (!whole).then_some(Some(cut)),
        })
    }

    /// The cut, if there is one. Valid after the last record.
    pub fn cut(&self) -> Option<&Cut> {
        self.stop.as_ref().and_then(Option::as_ref)
    }

    /// Everything before this offset has been read.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Stops reading.
    pub(crate) fn stop(&mut self, reason: CutReason) {
        self.ready.clear();
        let offset = self.offset;
        self.stop = Some(Some(Cut { offset, reason }));
    }

    /// The records of the next block that has any.
    pub(crate) fn batch(&mut self) -> Option<VecDeque<Record>> {
        while self.ready.is_empty() {
            if self.stop.is_some() {
                return None;
            }
            if let Err(reason) = self.next_block() {
                let offset = self.offset;
                self.stop = Some(reason.map(|reason| Cut { offset, reason }));
            }
        }
        Some(std::mem::take(&mut self.ready))
    }

    /// Number of records of unknown kinds skipped so far.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    fn next_block(&mut self) -> Result<(), Option<CutReason>> {
        let mut header = Vec::with_capacity(BLOCK_HEADER);
        self.read(BLOCK_HEADER, &mut header)?;
        if header.is_empty() {
            return Err((!self.ended).then_some(CutReason::NoEnd));
        }
        let header: [u8; BLOCK_HEADER] = header
            .try_into()
            .map_err(|_| Some(CutReason::InBlock { missing: None }))?;
        let header = BlockHeader::parse(header).map_err(Some)?;
        let mut payload = Vec::new();
        self.read(header.stored, &mut payload)?;
        if payload.len() < header.stored {
            let missing = (header.stored - payload.len()) as u64;
            return Err(Some(CutReason::InBlock {
                missing: Some(missing),
            }));
        }
        let batch = header.unpack(&payload).map_err(Some)?;
        let mut rest = &batch[..];
        let mut records = VecDeque::new();
        while !rest.is_empty() {
            let envelope = block::next_envelope(&mut rest).map_err(Some)?;
            if self
                .is_gathered(envelope, self.count + records.len())
                .map_err(Some)?
            {
                continue;
            }
            let Some(record) = block::record(envelope).map_err(Some)? else {
                self.unknown += 1;
                continue;
            };
            if let Some(gathering) = &mut self.gathering {
                gathering.keep(&record);
            }
            self.given += envelope.len() as u64;
            records.push_back(record);
        }
        self.ended |= records.iter().any(|r| matches!(r, Record::End(_)));
        self.count += records.len();
        self.ready = records;
        self.offset += (BLOCK_HEADER + header.stored) as u64;
        Ok(())
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

    /// Reads `len` bytes. Memory is allocated as bytes arrive, never by the stated size alone.
    fn read(&mut self, len: usize, into: &mut Vec<u8>) -> Result<(), Option<CutReason>> {
        match self.source.by_ref().take(len as u64).read_to_end(into) {
            Ok(_) => Ok(()),
            Err(error) => Err(Some(CutReason::Io(error.to_string()))),
        }
    }
}

impl<R: io::Read> Iterator for Reader<R> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.ready.is_empty() {
            self.ready = self.batch()?;
        }
        self.ready.pop_front()
    }
}
