//! Reading a capture: block by block ([`Reader`]) or whole ([`Capture`]).
//!
//! Whatever is wrong behind the file header is no error but a [`Cut`]: everything before it is
//! good and is given. Sizes are checked before memory is taken for them.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::block::{self, BLOCK_HEADER, BlockHeader, FILE_HEADER, MAJOR_VERSION};
use crate::record::{Event, Header, Record, Target};

/// Unpacked bytes a [`Capture`] takes in at most; a file that holds more is cut there.
const WHOLE_LIMIT: u64 = 4 << 30;

/// Nothing can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened.
    #[error("cannot open the capture {path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file could not be read at all.
    #[error("cannot read the capture: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty: the recording wrote nothing, record again")]
    Empty,
    /// It is some other file.
    #[error(
        "not an Unspool capture: the file does not begin with \"UNSPOOL\"; give a file written by `unspool record`"
    )]
    NotACapture,
    /// It says it is a capture, but its header is damaged.
    #[error(
        "the capture's file header is damaged (bad checksum); copy the file again or record again"
    )]
    HeaderDamaged,
    /// A major version this program does not know.
    #[error(
        "the capture has format version {major}.{minor}, this program reads version {MAJOR_VERSION}.x; open it with an Unspool that reads version {major}"
    )]
    Version {
        /// Major version needed.
        major: u16,
        /// Minor version written.
        minor: u16,
    },
}

/// Where a capture stops being readable, or that it was never ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Everything before this byte of the file is good.
    pub offset: u64,
    /// What is wrong there.
    pub reason: CutReason,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the capture is cut at byte {}: {}",
            self.offset, self.reason
        )
    }
}

/// Why a capture is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutReason {
    /// All blocks are whole, but the recording was not ended in order.
    NoEnd,
    /// The file ends inside its header.
    InFileHeader,
    /// The file ends inside a block.
    InBlock {
        /// Bytes of the block that are missing, if its header is there to tell.
        missing: Option<u64>,
    },
    /// There is something other than a block.
    NoBlock,
    /// A block claims a size no writer writes.
    BlockTooLarge {
        /// The size.
        size: u64,
    },
    /// A block's checksum is wrong.
    Checksum,
    /// A block's flags ask for something this version cannot do.
    UnknownFlags {
        /// The flags.
        flags: u32,
    },
    /// A block does not decompress to what it says.
    Compression,
    /// A block's records are malformed.
    Record,
    /// Reading failed.
    Io(String),
    /// The capture is larger than can be taken in whole.
    TooLarge,
}

impl fmt::Display for CutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CutReason::NoEnd => f.write_str("the recording was killed, or is still going on"),
            CutReason::InFileHeader => f.write_str("the file ends inside its header"),
            CutReason::InBlock { missing: None } => f.write_str("the file ends inside a block"),
            CutReason::InBlock {
                missing: Some(missing),
            } => write!(
                f,
                "the file ends inside a block ({missing} bytes are missing)"
            ),
            CutReason::NoBlock => f.write_str("what follows is not a block of a capture"),
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
            CutReason::TooLarge => f.write_str("the rest is too large to be opened at once"),
        }
    }
}

/// Reads a capture record by record, holding one block at a time.
#[derive(Debug)]
pub struct Reader<R: io::Read> {
    source: R,
    offset: u64,
    unpacked: u64,
    ready: VecDeque<Record>,
    unknown: u64,
    ended: bool,
    /// Set once there is nothing more to read: why.
    stop: Option<Option<Cut>>,
}

impl<R: io::Read> Reader<R> {
    /// Checks the file header.
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
            unpacked: 0,
            ready: VecDeque::new(),
            unknown: 0,
            ended: false,
            stop: (!whole).then_some(Some(cut)),
        })
    }

    /// Where the capture is cut; to be asked after the last record.
    pub fn cut(&self) -> Option<&Cut> {
        self.stop.as_ref().and_then(Option::as_ref)
    }

    /// Records skipped so far because this version does not know their kind.
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
        let mut records = Vec::new();
        self.unknown += header.unpack(&payload, &mut records).map_err(Some)?;
        self.ended |= records.iter().any(|r| matches!(r, Record::End(_)));
        self.ready = records.into();
        self.offset += (BLOCK_HEADER + header.stored) as u64;
        self.unpacked += header.unpacked as u64;
        Ok(())
    }

    /// Memory is taken as bytes arrive, never for a size that was only claimed.
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
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            if self.stop.is_some() {
                return None;
            }
            if let Err(reason) = self.next_block() {
                let offset = self.offset;
                self.stop = Some(reason.map(|reason| Cut { offset, reason }));
            }
        }
    }
}

/// A whole capture in memory, or one that was never in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capture {
    /// What is being recorded; default if the capture is cut before it.
    pub header: Header,
    /// The program; default if not recorded.
    pub target: Target,
    /// All records in the order they were made, [`Header`] and [`Target`] among them.
    pub records: Vec<Record>,
    /// The capture does not end in order: where, and why.
    pub cut: Option<Cut>,
    /// Records skipped because this version does not know their kind.
    pub unknown: u64,
}

impl Capture {
    /// Reads a capture file.
    pub fn read(path: impl AsRef<Path>) -> Result<Capture, ReadError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| ReadError::Open {
            path: path.into(),
            source,
        })?;
        Capture::read_from(io::BufReader::new(file))
    }

    /// Reads a capture from anywhere.
    pub fn read_from(source: impl io::Read) -> Result<Capture, ReadError> {
        let mut reader = Reader::new(source)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next() {
            records.push(record);
            if reader.unpacked > WHOLE_LIMIT {
                reader.ready.clear();
                let (offset, reason) = (reader.offset, CutReason::TooLarge);
                reader.stop = Some(Some(Cut { offset, reason }));
            }
        }
        let mut capture = Capture::from_records(records);
        capture.unknown = reader.unknown;
        capture.cut = reader.stop.flatten();
        Ok(capture)
    }

    /// A capture that was never written, e.g. one look at a program. It is not cut.
    pub fn from_records(records: Vec<Record>) -> Capture {
        let mut capture = Capture::default();
        for record in &records {
            match record {
                Record::Header(header) => capture.header = header.clone(),
                Record::Target(target) => capture.target = target.clone(),
                _ => {}
            }
        }
        capture.records = records;
        capture
    }

    /// All events in the order they were taken.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().filter_map(|record| match record {
            Record::Event(event) => Some(event),
            _ => None,
        })
    }
}
