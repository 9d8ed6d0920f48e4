//! Writing a capture so that being killed at any moment loses only what was not flushed.
//!
//! A block is built in memory and handed to the sink in one `write_all`; nothing written is ever
//! touched again. There is no thread here: the caller says when time has come ([`Writer::flush_if_due`]).

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use prost::Message;

use crate::block::{self, BLOCK_LIMIT, MINOR_VERSION};
use crate::record::{Envelope, Header, Record};

/// A batch this large is written without being asked for.
const FULL: usize = 256 << 10;
/// [`Writer::flush_if_due`] writes records that have waited this long.
const DUE: Duration = Duration::from_millis(200);

/// Writing failed. What was written before stays readable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file could not be created.
    #[error("cannot create the capture {path}: {source}; choose another file with -o", path = path.display())]
    Create {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The sink is full.
    #[error(
        "no space left for the capture ({written} bytes are written and readable): {source}; free some space or choose another place with -o"
    )]
    Full {
        /// Bytes of the capture that are whole.
        written: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The sink failed in another way.
    #[error("cannot write the capture ({written} bytes are written and readable): {source}")]
    Io {
        /// Bytes of the capture that are whole.
        written: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A single record does not fit into a block. The capture goes on without it.
    #[error(
        "a record of {size} bytes is larger than a capture allows ({BLOCK_LIMIT} bytes) and was left out"
    )]
    RecordTooLarge {
        /// Its size.
        size: usize,
    },
    /// An earlier write failed; nothing can follow.
    #[error(
        "the capture ended at an earlier write error; {written} bytes are written and readable"
    )]
    Broken {
        /// Bytes of the capture that are whole.
        written: u64,
    },
}

/// Writes a capture to a file or any other sink. Dropping it writes what is pending.
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: Option<W>,
    pending: Vec<u8>,
    /// When the oldest pending record came.
    since: Option<Instant>,
    written: u64,
    broken: bool,
}

impl Writer<File> {
    /// Begins a capture in a new file; one that exists is replaced.
    pub fn create(path: impl AsRef<Path>, header: Header) -> Result<Writer<File>, WriteError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| WriteError::Create {
            path: path.into(),
            source,
        })?;
        Writer::new(file, header)
    }
}

impl<W: Write> Writer<W> {
    /// Begins a capture: the file header and `header` are written at once.
    pub fn new(sink: W, mut header: Header) -> Result<Writer<W>, WriteError> {
        header.format_version = MINOR_VERSION.into();
        let mut writer = Writer {
            sink: Some(sink),
            pending: Vec::new(),
            since: None,
            written: 0,
            broken: false,
        };
        writer.put(&block::file_header())?;
        writer.record(header)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Continues a capture that is whole: `sink` writes behind its last byte, which is at `written`.
    pub fn append(sink: W, written: u64) -> Writer<W> {
        Writer {
            sink: Some(sink),
            pending: Vec::new(),
            since: None,
            written,
            broken: false,
        }
    }

    /// Adds a record. It is safe from a crash after the next flush; a full batch flushes itself.
    pub fn record(&mut self, record: impl Into<Record>) -> Result<(), WriteError> {
        if self.broken {
            return Err(WriteError::Broken {
                written: self.written,
            });
        }
        let envelope = Envelope {
            record: Some(record.into()),
        };
        // The length prefix of a record within the limit takes at most 4 bytes.
        let size = envelope.encoded_len();
        if size > BLOCK_LIMIT - 4 {
            return Err(WriteError::RecordTooLarge { size });
        }
        if self.pending.len() + size + 4 > BLOCK_LIMIT {
            self.flush()?;
        }
        self.pending.reserve(size + 4);
        if envelope.encode_length_delimited(&mut self.pending).is_err() {
            return Err(WriteError::RecordTooLarge { size });
        }
        self.since.get_or_insert_with(Instant::now);
        if self.pending.len() >= FULL {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is pending if it has waited long enough (200 ms). Cheap when nothing is due.
    pub fn flush_if_due(&mut self) -> Result<(), WriteError> {
        match self.since {
            Some(since) if since.elapsed() >= DUE => self.flush(),
            _ => Ok(()),
        }
    }

    /// Writes what is pending as one block.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.since = None;
        if self.pending.is_empty() {
            return Ok(());
        }
        let block = block::encode(&self.pending).map_err(|source| WriteError::Io {
            written: self.written,
            source,
        })?;
        self.pending.clear();
        self.put(&block)
    }

    /// Bytes written and readable so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes what is pending and gives the sink back. The caller has recorded an [`End`](crate::End).
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.flush()?;
        self.sink.take().ok_or(WriteError::Broken {
            written: self.written,
        })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.written;
        let Some(sink) = self.sink.as_mut().filter(|_| !self.broken) else {
            return Err(WriteError::Broken { written });
        };
        match sink.write_all(bytes).and_then(|()| sink.flush()) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                Ok(())
            }
            Err(source) => {
                // Part of the block may be out: anything after it would be unreadable.
                self.broken = true;
                Err(match source.kind() {
                    io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::FileTooLarge => WriteError::Full { written, source },
                    _ => WriteError::Io { written, source },
                })
            }
        }
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        if self.sink.is_some() && !self.broken {
            // Nobody is left to tell; the capture will say by itself that it is cut.
            let _ = self.flush();
        }
    }
}
