//! The capture file: observations of a program, and nothing derived from them.
//!
//! A capture is a short file header followed by blocks. A block is a checksummed, compressed batch
//! of [`Record`]s. Each block can be read alone. So a capture whose recorder was killed is readable
//! up to its last complete block. It reports where it is cut ([`Cut`]). Threads and trees are never
//! stored. They are computed when a capture is opened, and improve with the program that opens it.
//! Facts from the program's files may be stored beside the observations ([`Resolution`]).
//!
//! `docs/reference/capture-format.md` specifies the format. This crate needs no unwinder,
//! symbolizer or debugger, so that it can be fuzzed and reused alone.
//!
//! ```
//! use unspool_capture::{Capture, End, EndReason, Header, ThreadSeen, ThreadState, Writer};
//!
//! let mut writer = Writer::new(Vec::new(), Header::default())?;
//! writer.record(ThreadSeen { tid: 7, ..Default::default() })?;
//! writer.record(End { reason: EndReason::ProgramEnded.into(), ..Default::default() })?;
//! let bytes = writer.finish()?;
//!
//! let capture = Capture::read_from(&bytes[..])?;
//! assert!(capture.cut.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod block_reader;
mod calls;
mod capture;
mod reader;
mod record;
mod writer;

pub use block::{BLOCK_LIMIT, MAGIC, MAJOR_VERSION, MINOR_VERSION};
pub use calls::Calls;
pub use capture::Capture;
pub use reader::{Cut, CutReason, MAX_FURTHER_PROCESSES, ReadError, Reader};
pub use record::{
    AddressAspect, AddressMeaning, Blocked, BlockingCall, CLibrary, CLibraryFamily, CallSubject,
    Chunk, CpuTime, CpuTimes, CreationStack, Document, Dropped, End, EndReason, Event, FutexPlace,
    Gap, GapKind, GeneratedCode, Header, Inspection, Memory, Missed, ModuleLoaded, ModuleUnloaded,
    Note, NoteTopic, Occasion, OffCpuSample, OffCpuSamples, OtherProcess, Probe, ProbeKind,
    ProcessEnded, ProcessStarted, Read, ReadRole, Record, RegisterLayout, Resolution,
    ResolvedFrame, ResolvedPlace, ResolvedStack, SNAPSHOT_PROBE, Sample, Samples, SamplesEdge,
    Schedule, ScheduleEdge, ScheduleEntry, ScheduleKind, ScheduleLoss, Severity, ShortStops,
    Snapshot, SnapshotStack, Source, StallCause, Standstill, Stood, Target, ThreadEnd,
    ThreadExited, ThreadName, ThreadSeen, ThreadState, Unchanged,
};
pub use writer::{WriteError, Writer};
