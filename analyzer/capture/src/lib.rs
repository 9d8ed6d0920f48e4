//! The capture file: what was observed of a program, and nothing derived from it.
//!
//! A capture is a short file header followed by blocks; a block is a checksummed, compressed batch
//! of [`Record`]s. Blocks stand alone, so a recording that was killed opens up to its last whole
//! block and says where it is cut ([`Cut`]). Threads and trees are never stored: they are computed
//! from a capture each time it is opened, and get better with the program that opens it. What the
//! program's files say may be stored beside what was observed ([`Resolution`]).
//!
//! The format is specified in `docs/reference/capture-format.md`. This crate stands apart from the rest so that it can
//! be read, fuzzed and reused without an unwinder, a symbolizer or a debugger.
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
mod calls;
mod capture;
mod reader;
mod record;
mod writer;

pub use block::{BLOCK_LIMIT, MAGIC, MAJOR_VERSION, MINOR_VERSION};
pub use calls::Calls;
pub use capture::Capture;
pub use reader::{Cut, CutReason, ReadError, Reader};
pub use record::{
    AddressAspect, AddressMeaning, Blocked, CLibrary, CLibraryFamily, Chunk, CpuTime, CpuTimes,
    Document, Dropped, End, EndReason, Event, Gap, GapKind, Header, Inspection, Memory, Missed,
    ModuleLoaded, ModuleUnloaded, Note, Occasion, Probe, ProbeKind, ProcessEnded, Read, ReadRole,
    Record, RegisterLayout, Resolution, ResolvedFrame, ResolvedPlace, ResolvedStack,
    SNAPSHOT_PROBE, Severity, ShortStops, Snapshot, SnapshotStack, Source, StallCause, Standstill,
    Stood, Target, ThreadEnd, ThreadExited, ThreadName, ThreadSeen, ThreadState,
};
pub use writer::{WriteError, Writer};
