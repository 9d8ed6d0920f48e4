//! Reading all threads when a recording ends and its program still lives, as `unspool inspect` does.
//!
//! What a program is stuck in is then found whatever was recorded before. The program stands, or each
//! thread does for a moment where another client has control.

use std::time::{Duration, Instant};

use unspool_capture::{Capture, Inspection, Occasion, Severity};
use unspool_rsp::signals;

use super::recorder::{Recorder, SIGINT};
use super::thread_reader::Wanted;
use super::{Error, WantsMore};

/// What one object says may tell where another is; nothing needs more looks than this.
pub const MAX_LOOKS: usize = 4;
/// Two reasons to read the threads that follow each other faster are one.
const SAME_END: Duration = Duration::from_secs(1);
/// `SigCgt` and `SigIgn` of a process, by which it survives a signal (proc(5)).
const SURVIVED: [&str; 2] = ["SigCgt:", "SigIgn:"];

/// The reading of all threads at the end of a recording.
#[derive(Default)]
pub(super) struct EndInspection {
    wants_more: Option<WantsMore>,
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
    pub(super) fn new(wants_more: Option<WantsMore>) -> Self {
        Self {
            wants_more,
            ..Self::default()
        }
    }

    /// The threads have been read just now.
    pub(super) fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.elapsed() < SAME_END)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }
}

impl Recorder {
    /// Reads all threads, and all that their waits need. `signal`: gdb's number of the one that is
    /// about to be delivered.
    pub(super) fn inspect_for_end(
        &mut self,
        signal: Option<u8>,
        stands: bool,
    ) -> Result<(), Error> {
        if self.end_inspection.is_done() {
            return Ok(());
        }
        self.begin_inspection(signal, stands)?;
        self.find_wanted();
        self.finish_inspection()
    }

    /// Reads all threads for the first time. Only a lost connection is a failure.
    pub(super) fn begin_inspection(
        &mut self,
        signal: Option<u8>,
        stands: bool,
    ) -> Result<(), Error> {
        let from_ns = self.sink.now_ns();
        self.sink.begin_copy(from_ns, &self.threads.ids());
        let read = self.read_all_threads(stands);
        if let Err(error) = read {
            self.sink.take_copy();
            if let Error::Rsp(error) = &error
                && !error.is_fatal()
            {
                self.sink.note(
                    Severity::Warning,
                    format!("the threads could not be read at the end of the recording: {error}"),
                );
                return Ok(());
            }
            return Err(error);
        }
        self.end_inspection.begun = Some(Begun {
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

    /// Finds out what more has to be read. The program may run meanwhile.
    pub(super) fn find_wanted(&mut self) {
        let inspection = &mut self.end_inspection;
        if let (Some(begun), Some(wants_more)) = (&mut inspection.begun, &mut inspection.wants_more)
        {
            let records = self.sink.copy().to_vec();
            begun.wanted = wants_more(&Capture::from_records(records));
        }
    }

    /// Reads it.
    pub(super) fn finish_inspection(&mut self) -> Result<(), Error> {
        for _ in 0..MAX_LOOKS {
            let Some(begun) = &mut self.end_inspection.begun else {
                return Ok(());
            };
            let wanted = std::mem::take(&mut begun.wanted);
            if wanted.is_empty() {
                break;
            }
            self.read_more(&wanted);
            self.find_wanted();
        }
        let Some(begun) = self.end_inspection.begun.take() else {
            return Ok(());
        };
        self.sink.take_copy();
        let linux = |signal| signals::to_linux(signal).map(u32::from);
        let to_ns = self.sink.now_ns();
        self.sink.record(Inspection {
            from_ns: begun.from_ns,
            to_ns,
            occasion: begun.occasion.into(),
            signal: begun.signal.and_then(linux),
        });
        self.end_inspection.done = Some(Instant::now());
        Ok(())
    }

    /// Whether a signal that is about to be delivered ends the program. Of others than SIGINT our stub
    /// tells only if they do.
    pub(super) fn is_fatal(&mut self, signal: u8) -> bool {
        if !self.stops_before_fatal {
            return false;
        }
        if signal != SIGINT {
            return true;
        }
        let Some(pid) = self.session.pid else {
            return false;
        };
        let status = self.session.kernels_word(pid, "status").unwrap_or_default();
        !SURVIVED.iter().any(|name| {
            let mut lines = status.lines();
            let mask = lines.find_map(|line| line.strip_prefix(name));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_none_or(|mask| mask >> (SIGINT - 1) & 1 != 0)
        })
    }
}
