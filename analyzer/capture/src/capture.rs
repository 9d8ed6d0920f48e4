//! A capture as those see it who work with all of it.
//!
//! Of a file, the events of calls stay in the file: there may be millions, and whoever wants them takes them one by one
//! ([`Capture::each`]). Everything else is in memory.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use crate::calls::{Calls, Declared, Gathering};
use crate::reader::{Cut, CutReason, ReadError, Reader};
use crate::record::{Event, Header, Record, Resolution, Target};

/// Bytes of records that a [`Capture`] takes in at most; a file that holds more is cut there.
const WHOLE_LIMIT: u64 = 4 << 30;
/// Blocks that are read ahead.
const AHEAD: usize = 4;

/// A capture, or one that was never in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Capture {
    /// What is being recorded; default if the capture is cut before it.
    pub header: Header,
    /// The program; default if not recorded.
    pub target: Target,
    /// All records in the order they were made, [`Header`] and [`Target`] among them; but for the events of
    /// [`calls`](Self::calls).
    pub records: Vec<Record>,
    /// Of events of calls that are not among the records.
    pub calls: Calls,
    /// What the program's files said when the recording ended; not among the records.
    pub resolution: Vec<Resolution>,
    /// The capture does not end in order: where, and why.
    pub cut: Option<Cut>,
    /// Records skipped because this version does not know their kind.
    pub unknown: u64,
    tape: Option<Tape>,
}

/// Where the rest is.
#[derive(Clone, Debug)]
struct Tape {
    file: Arc<File>,
    /// What was good of it.
    length: u64,
}

impl PartialEq for Tape {
    fn eq(&self, other: &Tape) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Capture {
    /// Reads a capture file.
    pub fn read(path: impl AsRef<Path>) -> Result<Capture, ReadError> {
        let path = path.as_ref();
        let open = |source| ReadError::Open {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(open)?;
        // What cannot be read twice is kept whole.
        if !file.metadata().map_err(open)?.is_file() {
            return Capture::read_from(BufReader::new(file));
        }
        let mut reader = Reader::new(BufReader::new(&file))?;
        reader.gathering = Some(Gathering::default());
        let mut capture = Capture::take_in(&mut reader);
        capture.calls = reader.gathering.take().unwrap_or_default().finish();
        let length = reader.offset();
        drop(reader);
        capture.tape = Some(Tape {
            file: Arc::new(file),
            length,
        });
        Ok(capture)
    }

    /// Reads a capture from anywhere, all of it.
    pub fn read_from(source: impl Read) -> Result<Capture, ReadError> {
        Ok(Capture::take_in(&mut Reader::new(source)?))
    }

    fn take_in(reader: &mut Reader<impl Read>) -> Capture {
        let (mut records, mut resolution) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.batch() {
            for record in batch {
                match record {
                    Record::Resolution(part) => resolution.push(part),
                    other => records.push(other),
                }
            }
            if reader.given > WHOLE_LIMIT {
                reader.stop(CutReason::TooLarge);
            }
        }
        let mut capture = Capture::from_records(records);
        capture.resolution = resolution;
        capture.unknown = reader.unknown();
        capture.cut = reader.cut().cloned();
        capture
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

    /// The events among the [`records`](Self::records), in the order they were taken.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().filter_map(|record| match record {
            Record::Event(event) => Some(event),
            _ => None,
        })
    }

    /// Shows all records in their order, events of calls among them; with each its place among the
    /// [`records`](Self::records), or that of the one before it.
    pub fn each(&self, visit: &mut dyn FnMut(usize, &Record)) -> Result<(), ReadError> {
        match &self.tape {
            Some(tape) if self.calls.count() > 0 => tape.play(visit),
            _ => {
                for (at, record) in self.records.iter().enumerate() {
                    visit(at, record);
                }
                Ok(())
            }
        }
    }
}

impl Tape {
    fn play(&self, visit: &mut dyn FnMut(usize, &Record)) -> Result<(), ReadError> {
        let mut file = &*self.file;
        file.rewind()?;
        let source = BufReader::new(file.take(self.length));
        let mut reader = Reader::new(source)?;
        let mut declared = Declared::default();
        let mut count = 0_usize;
        let mut show = |record: &Record| {
            declared.see(record);
            let of_calls =
                matches!(record, Record::Event(event) if declared.is_of_calls(event.probe));
            count += usize::from(!of_calls);
            visit(count.saturating_sub(1), record);
        };
        let read = std::thread::scope(|scope| -> io::Result<u64> {
            let (sender, blocks) = sync_channel(AHEAD);
            let ahead = std::thread::Builder::new().spawn_scoped(scope, move || {
                while let Some(batch) = reader.batch() {
                    if sender.send(batch).is_err() {
                        break;
                    }
                }
                reader.offset()
            })?;
            for batch in blocks {
                batch.iter().for_each(&mut show);
            }
            // It does not panic.
            Ok(ahead.join().unwrap_or(0))
        })?;
        if read == self.length {
            Ok(())
        } else {
            Err(ReadError::Changed)
        }
    }
}
