//! Receives all records: in a capture file, or in memory for an inspection. Keeps the recording's
//! clock.

use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use unspool_capture::{
    End, EndReason, Event, Header, MAX_FURTHER_PROCESSES, Note, NoteTopic, Record, Severity,
    Source, ThreadSeen, WriteError, Writer,
};
use unspool_rsp::ThreadId;

/// Receives records. Keeps the first write error and drops all later records, because the recorder
/// must still detach from the program properly.
pub(super) struct Sink {
    out: Out,
    start: Instant,
    events: u64,
    /// The probes that have events.
    hit_probes: HashSet<u32>,
    failure: Option<WriteError>,
    /// Records that describe mapped memory: the program and its modules.
    mapped: Vec<Record>,
    /// A copy of the records made while threads are read, and of the records needed to understand
    /// them.
    copy: Option<Vec<Record>>,
    /// Starts and ends of threads are left out from this time on.
    threads_until_ns: Option<u64>,
}

enum Out {
    File(Option<Part>),
    Memory(Vec<Record>),
}

/// The part of a capture file that has the records of one process.
struct Part {
    file: CaptureFile,
    /// The number of the process: 0 for the first one.
    process: u32,
}

/// A capture file, which the sinks of all recorded processes share. So they have one clock.
#[derive(Clone)]
pub(super) struct CaptureFile {
    writer: Arc<Mutex<Writer<File>>>,
    start: Instant,
    start_unix_ns: u64,
    /// The number of processes.
    processes: Arc<AtomicU32>,
}

impl CaptureFile {
    /// Begins a capture with the header of its first process.
    pub(super) fn new(file: File, header: Header) -> Result<Self, WriteError> {
        let start_unix_ns = header.start_unix_ns;
        Ok(Self {
            writer: Arc::new(Mutex::new(Writer::new(file, header)?)),
            start: Instant::now(),
            start_unix_ns,
            processes: Arc::new(AtomicU32::new(1)),
        })
    }

    /// The sink of the first process.
    pub(super) fn first(self) -> Sink {
        self.sink(0)
    }

    /// The sink of a further process.
    pub(super) fn further(self, mut header: Header) -> Result<Sink, WriteError> {
        header.start_unix_ns = self.start_unix_ns;
        let process = self.next_process();
        self.writer().begin(process, header)?;
        Ok(self.sink(process))
    }

    /// Adds a further process whose records have their own clock. Does nothing if the file has as
    /// many processes as it can have.
    fn add(&self, header: Header, records: impl Iterator<Item = Record>) -> Result<(), WriteError> {
        let process = self.next_process();
        if process > MAX_FURTHER_PROCESSES {
            return Ok(());
        }
        let mut writer = self.writer();
        writer.begin(process, header)?;
        for record in records {
            match writer.record_of(process, record) {
                Ok(()) | Err(WriteError::RecordTooLarge { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The number of the next process: that of the second one is 1.
    fn next_process(&self) -> u32 {
        self.processes.fetch_add(1, Ordering::Relaxed)
    }

    fn sink(self, process: u32) -> Sink {
        let start = self.start;
        let file = self;
        Sink::new(Out::File(Some(Part { file, process })), start)
    }

    /// The writer. A sink that panicked left it between two records.
    fn writer(&self) -> MutexGuard<'_, Writer<File>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    pub(super) fn memory(header: Header) -> Self {
        Self::new(Out::Memory(vec![header.into()]), Instant::now())
    }

    fn new(out: Out, start: Instant) -> Self {
        Self {
            out,
            start,
            threads_until_ns: None,
            events: 0,
            hit_probes: HashSet::new(),
            failure: None,
            mapped: Vec::new(),
            copy: None,
        }
    }

    /// Copies all records from now on. The copy is an inspection of these threads.
    pub(super) fn begin_copy(&mut self, time_ns: u64, threads: &[ThreadId]) {
        let header = Header {
            source: Source::Inspected.into(),
            ..Header::default()
        };
        let seen = threads.iter().map(|thread| ThreadSeen {
            tid: thread.tid,
            time_ns,
            existed_before: true,
            ..ThreadSeen::default()
        });
        let mut copy: Vec<Record> = vec![header.into()];
        copy.extend(self.mapped.iter().cloned());
        copy.extend(seen.map(Record::from));
        self.copy = Some(copy);
    }

    /// The copy so far.
    pub(super) fn copy(&self) -> &[Record] {
        self.copy.as_deref().unwrap_or_default()
    }

    /// Ends and returns the copy.
    pub(super) fn take_copy(&mut self) -> Vec<Record> {
        self.copy.take().unwrap_or_default()
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Leaves out starts and ends of threads from now on. The probes are gone, so that creations
    /// and joins are missing.
    pub(super) fn close_threads(&mut self) {
        self.threads_until_ns = Some(self.now_ns());
    }

    /// Whether the start or end of a thread at this time is recorded.
    pub(super) fn takes_threads_at(&self, ns: u64) -> bool {
        self.threads_until_ns.is_none_or(|until_ns| ns < until_ns)
    }

    pub(super) fn record(&mut self, record: impl Into<Record>) {
        let record = record.into();
        if matches!(
            record,
            Record::Target(_) | Record::ModuleLoaded(_) | Record::ModuleUnloaded(_)
        ) {
            self.mapped.push(record.clone());
        }
        if let Some(copy) = &mut self.copy {
            copy.push(record.clone());
        }
        let result = match &mut self.out {
            Out::Memory(records) => {
                records.push(record);
                return;
            }
            Out::File(Some(part)) if self.failure.is_none() => {
                part.file.writer().record_of(part.process, record)
            }
            Out::File(_) => return,
        };
        self.keep(result);
    }

    /// Number of events so far.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// True if a probe has recorded an event.
    pub(super) fn has_events(&self, probe: u32) -> bool {
        self.hit_probes.contains(&probe)
    }

    fn next_event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Records an event under the next number.
    pub(super) fn record_event(&mut self, mut event: Event) {
        event.seq = self.next_event();
        self.hit_probes.insert(event.probe);
        self.record(event);
    }

    /// Adds a note to the recording.
    pub(super) fn note(&mut self, severity: Severity, text: impl Into<String>) {
        let note = Note {
            time_ns: self.now_ns(),
            severity: severity.into(),
            text: text.into(),
            topic: NoteTopic::Recording.into(),
        };
        self.record(note);
    }

    /// Adds a note about how calls were recorded.
    pub(super) fn note_calls(&mut self, text: impl Into<String>) {
        let note = Note {
            time_ns: self.now_ns(),
            severity: Severity::Info.into(),
            text: text.into(),
            topic: NoteTopic::Calls.into(),
        };
        self.record(note);
    }

    /// Writes records that have waited long enough.
    pub(super) fn flush_if_due(&mut self) {
        if let Out::File(Some(part)) = &self.out {
            let result = part.file.writer().flush_if_due();
            self.keep(result);
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Ends the capture and returns the first write error, if there was one.
    pub(super) fn finish(&mut self, reason: EndReason, detail: String) -> Option<WriteError> {
        let time_ns = self.now_ns();
        self.record(End {
            reason: reason.into(),
            time_ns,
            detail,
        });
        if let Out::File(part) = &mut self.out
            && let Some(part) = part.take()
        {
            let result = part.file.writer().flush();
            self.keep(result);
        }
        self.failure.take()
    }

    /// The records in memory.
    pub(super) fn records(&self) -> &[Record] {
        match &self.out {
            Out::Memory(records) => records,
            Out::File(_) => &[],
        }
    }

    /// The records in memory, at the end.
    pub(super) fn into_records(self) -> Vec<Record> {
        match self.out {
            Out::Memory(records) => records,
            Out::File(_) => Vec::new(),
        }
    }

    /// Adds the records of another process to the file. The first of them is its header.
    pub(super) fn add_process(&mut self, records: Vec<Record>) {
        let mut records = records.into_iter();
        if let (Out::File(Some(part)), Some(Record::Header(header))) = (&self.out, records.next()) {
            let result = part.file.add(header, records);
            self.keep(result);
        }
    }

    fn keep(&mut self, result: Result<(), WriteError>) {
        match result {
            Ok(()) | Err(WriteError::RecordTooLarge { .. }) => {}
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// Wall-clock time for the header, for display only.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since
        .ok()
        .and_then(|time| u64::try_from(time.as_nanos()).ok())
        .unwrap_or(0)
}
