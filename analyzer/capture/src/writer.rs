//! Writes a capture so that a crash at any moment loses only records that were not flushed.
//!
//! A block is built in memory and passed to the sink in one `write_all`; written bytes never
//! change. There is no thread here: the caller decides when to flush ([`Writer::flush_if_due`]).

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use prost::Message;

use crate::block::{self, BLOCK_LIMIT, MINOR_VERSION};
use crate::record::{Envelope, Header, Record};

/// Size of a batch that is written at once, in bytes.
const BATCH_SIZE: usize = 256 << 10;
/// Maximum age of records before [`Writer::flush_if_due`] writes them.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// Writing failed. Everything written before stays readable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The file could not be created.
    #[error("cannot create the recording {path}: {source}; choose another file with -o", path = path.display())]
    Create {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The sink is full.
    #[error(
        "no space left for the recording (only its first {written} bytes can be read): {source}; free some space or choose another place with -o"
    )]
    Full {
        /// Number of readable bytes in the capture.
        written: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The sink failed in another way.
    #[error("cannot write the recording (only its first {written} bytes can be read): {source}")]
    Io {
        /// Number of readable bytes in the capture.
        written: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A single record does not fit in a block. The capture continues without it.
    #[error(
        "a record of {size} bytes is larger than a recording allows ({BLOCK_LIMIT} bytes) and was left out"
    )]
    RecordTooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// An earlier write failed, so nothing more can be written.
    #[error(
        "the recording ended at an earlier write error; only its first {written} bytes can be read"
    )]
    Broken {
        /// Number of readable bytes in the capture.
        written: u64,
    },
}

/// Writes a capture to a file or any other sink. Dropping it writes pending records.
#[derive(Debug)]
pub struct Writer<W: Write> {
    sink: Option<W>,
    pending: Vec<u8>,
    /// The time of the oldest pending record.
    since: Option<Instant>,
    written: u64,
    broken: bool,
}

impl Writer<File> {
    /// Starts a capture in a new file; replaces an existing file.
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
    /// Starts a capture. Writes the file header and `header` at once.
    pub fn new(sink: W, header: Header) -> Result<Writer<W>, WriteError> {
        let mut writer = Writer {
            sink: Some(sink),
            pending: Vec::new(),
            since: None,
            written: 0,
            broken: false,
        };
        writer.put(&block::file_header())?;
        writer.begin(0, header)?;
        Ok(writer)
    }

    /// Begins the records of the process with this number: 1 for the second one. Writes `header` at
    /// once.
    pub fn begin(&mut self, process: u32, mut header: Header) -> Result<(), WriteError> {
        header.format_version = MINOR_VERSION.into();
        self.record_of(process, header)?;
        self.flush()
    }

    /// Continues a complete capture. `sink` appends to its last byte, which is at `written`.
    pub fn append(sink: W, written: u64) -> Writer<W> {
        Writer {
            sink: Some(sink),
            pending: Vec::new(),
            since: None,
            written,
            broken: false,
        }
    }

    /// Adds a record of the first process. The next flush makes it safe from a crash; a full batch
    /// is flushed at once.
    pub fn record(&mut self, record: impl Into<Record>) -> Result<(), WriteError> {
        self.record_of(0, record)
    }

    /// Adds a record of the process with this number.
    pub fn record_of(&mut self, process: u32, record: impl Into<Record>) -> Result<(), WriteError> {
        let envelope = Envelope {
            record: Some(record.into()),
        };
        match process {
            0 => self.put_in_batch(&envelope),
            process => self.put_in_batch(&block::part(process, &envelope)),
        }
    }

    fn put_in_batch(&mut self, envelope: &impl Message) -> Result<(), WriteError> {
        if self.broken {
            return Err(WriteError::Broken {
                written: self.written,
            });
        }
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
        if self.pending.len() >= BATCH_SIZE {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes pending records if they have waited 200 ms. Cheap otherwise.
    pub fn flush_if_due(&mut self) -> Result<(), WriteError> {
        match self.since {
            Some(since) if since.elapsed() >= FLUSH_INTERVAL => self.flush(),
            _ => Ok(()),
        }
    }

    /// Writes pending records as one block.
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

    /// Number of bytes that are written and readable.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes pending records and returns the sink. The caller has already recorded an
    /// [`End`](crate::End).
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
                // Part of the block may have been written, so anything after it would be
                // unreadable.
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
            // An error cannot be reported here, but a reader of the capture sees that it is cut.
            let _ = self.flush();
        }
    }
}
