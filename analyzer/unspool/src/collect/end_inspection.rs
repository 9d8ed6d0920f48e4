//! Reads all threads when a recording ends while its program still runs, as `unspool inspect` does.
//!
//! This finds a hang regardless of what was recorded before. The program is stopped. If another
//! client has control, each thread is stopped only for a moment.

use std::time::{Duration, Instant};

use unspool_capture::{Capture, Inspection, Occasion, Severity};
use unspool_rsp::signals;

use super::end_analysis::{EndAnalysis, Wanted};
use super::error::Error;
use super::sink::Sink;
use super::thread_reader::ThreadReader;

/// Maximum number of rounds of further reads. Each may find the address of another object.
pub const MAX_LOOKS: usize = 4;
/// Interval after an inspection within which another one would show the same, or the effects of the
/// SIGINT that ends the program.
const SAME_END: Duration = Duration::from_secs(3);

/// The reading of all threads at the end of a recording.
#[derive(Default)]
pub(super) struct EndInspection {
    analysis: Option<Box<dyn EndAnalysis>>,
    /// Other processes were inspected.
    has_others: bool,
    begun: Option<Begun>,
    done: Option<Instant>,
}

struct Begun {
    from_ns: u64,
    occasion: Occasion,
    signal: Option<u8>,
    wanted: Wanted,
}

impl EndInspection {
    pub(super) fn new(analysis: Option<Box<dyn EndAnalysis>>) -> Self {
        Self {
            analysis,
            ..Self::default()
        }
    }

    /// The analysis, to inspect other processes once this inspection has ended. That happens once.
    /// [`return_analysis`](Self::return_analysis) follows.
    pub(super) fn analysis_of_others(&mut self) -> Option<Box<dyn EndAnalysis>> {
        self.done.filter(|_| !self.has_others)?;
        self.has_others = true;
        self.analysis.take()
    }

    pub(super) fn return_analysis(&mut self, analysis: Box<dyn EndAnalysis>) {
        self.analysis = Some(analysis);
        // The inspections of other processes may have taken long.
        self.done = Some(Instant::now());
    }

    /// True if the threads have just been read.
    fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.elapsed() < SAME_END)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Reads all threads, and all data that explain their waits. `signal` is gdb's number of the
    /// signal that is about to be delivered.
    pub(super) fn run(
        &mut self,
        reader: &mut ThreadReader<'_>,
        signal: Option<u8>,
        is_stopped: bool,
    ) -> Result<(), Error> {
        if self.is_done() {
            return Ok(());
        }
        self.begin(reader, signal, is_stopped)?;
        self.find_wanted(reader.sink());
        self.finish(reader)
    }

    /// Reads all threads for the first time. Fails only if the connection is lost.
    pub(super) fn begin(
        &mut self,
        reader: &mut ThreadReader<'_>,
        signal: Option<u8>,
        is_stopped: bool,
    ) -> Result<(), Error> {
        let from_ns = reader.sink().now_ns();
        let threads = reader.thread_ids();
        reader.sink().begin_copy(from_ns, &threads);
        let read = reader.read_all(is_stopped);
        if let Err(error) = read {
            reader.sink().take_copy();
            if let Error::Rsp(error) = &error
                && !error.is_fatal()
            {
                reader.sink().note(
                    Severity::Warning,
                    format!("the threads could not be read at the end of the recording: {error}"),
                );
                return Ok(());
            }
            return Err(error);
        }
        self.begun = Some(Begun {
            from_ns,
            occasion: match signal {
                Some(_) => Occasion::Signal,
                None => Occasion::Request,
            },
            signal,
            wanted: Wanted::default(),
        });
        Ok(())
    }

    /// Finds out what else to read. The program may run meanwhile.
    pub(super) fn find_wanted(&mut self, sink: &Sink) {
        if let (Some(begun), Some(analysis)) = (&mut self.begun, &mut self.analysis) {
            let records = sink.copy().to_vec();
            begun.wanted = analysis.wanted(&Capture::from_records(records));
        }
    }

    /// Reads the remaining data and ends the inspection.
    pub(super) fn finish(&mut self, reader: &mut ThreadReader<'_>) -> Result<(), Error> {
        for _ in 0..MAX_LOOKS {
            let Some(begun) = &mut self.begun else {
                return Ok(());
            };
            let wanted = std::mem::take(&mut begun.wanted);
            if wanted.is_empty() {
                break;
            }
            reader.read_more(&wanted);
            self.find_wanted(reader.sink());
        }
        let Some(begun) = self.begun.take() else {
            return Ok(());
        };
        reader.sink().take_copy();
        let linux = |signal| signals::to_linux(signal).map(u32::from);
        let to_ns = reader.sink().now_ns();
        reader.sink().record(Inspection {
            from_ns: begun.from_ns,
            to_ns,
            occasion: begun.occasion.into(),
            signal: begun.signal.and_then(linux),
        });
        self.done = Some(Instant::now());
        Ok(())
    }
}
