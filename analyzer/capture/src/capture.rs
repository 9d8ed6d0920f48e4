//! A whole capture in memory.
//!
//! Call events stay in the file, because there may be millions. [`Capture::each`] reads them one by
//! one. Everything else is in memory.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use crate::block_reader::{Block, read_ahead};
use crate::calls::{CallSummary, Calls, DeclaredProbes};
use crate::reader::{Cut, CutReason, ReadError, Reader};
use crate::record::{Event, Header, Record, Resolution, Target};

/// Maximum size of the records in memory, in bytes. A larger file is cut there.
const WHOLE_LIMIT: u64 = 4 << 30;

/// A capture from a file, or one that was never stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capture {
    /// The recording's header; default if the capture is cut before it.
    pub header: Header,
    /// The program; default if not recorded.
    pub target: Target,
    /// All records in their order, including [`Header`] and [`Target`], without the events of
    /// [`calls`](Self::calls).
    pub records: Vec<Record>,
    /// Summary of the call events that are not among the records.
    pub calls: Calls,
    /// Facts from the program's files at the end of the recording; not among the records.
    pub resolution: Vec<Resolution>,
    /// The place and the reason, if the capture does not end properly.
    pub cut: Option<Cut>,
    /// Number of skipped records of unknown kinds.
    pub unknown: u64,
    /// The numbers of the further processes of the recording, for
    /// [`read_process`](Self::read_process).
    pub further: Vec<u32>,
    stored: Option<StoredCalls>,
}

/// The file with the other records.
#[derive(Clone, Debug)]
struct StoredCalls {
    file: Arc<File>,
    /// Length of its valid part.
    length: u64,
    /// The number of the process.
    process: u32,
}

impl PartialEq for StoredCalls {
    fn eq(&self, other: &StoredCalls) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Capture {
    /// Reads the records of the first process of a capture file.
    pub fn read(path: impl AsRef<Path>) -> Result<Capture, ReadError> {
        Capture::read_process(path, 0)
    }

    /// Reads the records of the process with this number.
    pub fn read_process(path: impl AsRef<Path>, process: u32) -> Result<Capture, ReadError> {
        let path = path.as_ref();
        let open = |source| ReadError::Open {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(open)?;
        // A source that cannot be read twice is kept in memory.
        if !file.metadata().map_err(open)?.is_file() {
            return Capture::take_in(&mut Reader::of_process(BufReader::new(file), process)?);
        }
        let mut reader = Reader::of_process(BufReader::new(&file), process)?;
        reader.decoder.gathering = Some(CallSummary::default());
        let mut capture = Capture::take_in(&mut reader)?;
        let gathered = reader.decoder.gathering.take();
        capture.calls = gathered.unwrap_or_default().finish();
        let length = reader.decoder.offset;
        drop(reader);
        capture.stored = Some(StoredCalls {
            file: Arc::new(file),
            length,
            process,
        });
        Ok(capture)
    }

    /// Reads a whole capture from any source.
    pub fn read_from(source: impl Read + Send) -> Result<Capture, ReadError> {
        Capture::take_in(&mut Reader::new(source)?)
    }

    fn take_in(reader: &mut Reader<impl Read + Send>) -> Result<Capture, ReadError> {
        let (mut records, mut resolution) = (Vec::new(), Vec::new());
        let Reader {
            blocks, decoder, ..
        } = reader;
        let mut batch = Vec::new();
        let take = |block: &mut Block| {
            if !decoder.decode(block, &mut batch) {
                return false;
            }
            for record in batch.drain(..) {
                match record {
                    Record::Resolution(part) => resolution.push(part),
                    other => records.push(other),
                }
            }
            if decoder.given > WHOLE_LIMIT {
                decoder.stop(CutReason::TooLarge);
            }
            decoder.cut().is_none()
        };
        read_ahead(|block| blocks.next(block), take)?;
        decoder.finish(blocks.damage.take());
        let mut capture = Capture::from_records(records);
        capture.resolution = resolution;
        capture.unknown = decoder.unknown;
        capture.further = decoder.further.iter().copied().collect();
        capture.cut = decoder.cut().cloned();
        Ok(capture)
    }

    /// A capture that was never stored, such as an inspection. It is not cut.
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

    /// The events among the [`records`](Self::records), in their order.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().filter_map(|record| match record {
            Record::Event(event) => Some(event),
            _ => None,
        })
    }

    /// Passes all records to `visit` in order, including call events. Each comes with its index in
    /// [`records`](Self::records), or that of the record before it.
    pub fn each(&self, visit: &mut dyn FnMut(usize, &Record)) -> Result<(), ReadError> {
        match &self.stored {
            Some(stored) if self.calls.count() > 0 => stored.visit(visit),
            _ => {
                for (at, record) in self.records.iter().enumerate() {
                    visit(at, record);
                }
                Ok(())
            }
        }
    }
}

impl StoredCalls {
    fn visit(&self, visit: &mut dyn FnMut(usize, &Record)) -> Result<(), ReadError> {
        let mut file = &*self.file;
        file.rewind()?;
        let source = BufReader::new(file.take(self.length));
        let mut reader = Reader::of_process(source, self.process)?;
        let mut declared = DeclaredProbes::default();
        let mut count = 0_usize;
        let mut show = |record: &Record| {
            declared.see(record);
            let of_calls =
                matches!(record, Record::Event(event) if declared.is_of_calls(event.probe));
            count += usize::from(!of_calls);
            visit(count.saturating_sub(1), record);
        };
        let show_batch = |batch: &mut Vec<Record>| {
            batch.iter().for_each(&mut show);
            true
        };
        read_ahead(|batch| reader.fill(batch), show_batch)?;
        if reader.decoder.offset == self.length {
            Ok(())
        } else {
            Err(ReadError::Changed)
        }
    }
}
