//! The records of a capture, as protobuf messages.
//!
//! They are Rust types with derived encoding, so that building needs no `protoc`.
//! `docs/reference/capture-format.md` contains the same schema as a `.proto`. Field numbers never
//! change. All times are monotonic nanoseconds since the start of the recording; all thread ids are
//! the kernel's.

mod across;
mod cpu_times;
mod creation_stack;
mod event;
mod futex_place;
mod generated_code;
mod header;
mod module;
mod part;
mod resolution;
mod samples;
mod schedule;

pub use across::{CallSubject, OtherProcess, Unchanged};
pub use cpu_times::{CpuTime, CpuTimes};
pub use creation_stack::CreationStack;
pub use event::{Chunk, Event, Probe, ProbeKind, Read, ReadRole, Snapshot};
pub use futex_place::FutexPlace;
pub use generated_code::GeneratedCode;
pub use header::{Document, Header, RegisterLayout, Source, Target};
pub use module::{ModuleLoaded, ModuleUnloaded};
pub(crate) use part::{Part, PartEnvelope};
pub use resolution::{
    AddressAspect, AddressMeaning, CLibrary, CLibraryFamily, Resolution, ResolvedFrame,
    ResolvedPlace, ResolvedStack, SnapshotStack,
};
pub use samples::{OffCpuSample, OffCpuSamples, Sample, Samples, SamplesEdge};
pub use schedule::{
    BlockingCall, Schedule, ScheduleEdge, ScheduleEntry, ScheduleKind, ScheduleLoss,
};

/// Probe id of events without a probe: the recorder stopped the thread and read it.
pub const SNAPSHOT_PROBE: u32 = 0;

/// One observation. A capture is a sequence of records, in the order of observation.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Record {
    /// Facts about the recording and the recorder. The first record.
    #[prost(message, tag = "1")]
    Header(Header),
    /// The program and its machine.
    #[prost(message, tag = "2")]
    Target(Target),
    /// An image was mapped.
    #[prost(message, tag = "3")]
    ModuleLoaded(ModuleLoaded),
    /// An image was unmapped.
    #[prost(message, tag = "4")]
    ModuleUnloaded(ModuleUnloaded),
    /// A thread was seen for the first time.
    #[prost(message, tag = "5")]
    ThreadSeen(ThreadSeen),
    /// A thread's name changed since it was last read.
    #[prost(message, tag = "6")]
    ThreadName(ThreadName),
    /// A thread ended.
    #[prost(message, tag = "7")]
    ThreadExited(ThreadExited),
    /// A place whose execution is recorded.
    #[prost(message, tag = "8")]
    Probe(Probe),
    /// A probe was hit, or the recorder read a thread.
    #[prost(message, tag = "9")]
    Event(Event),
    /// A message from the recorder to the reader of the report.
    #[prost(message, tag = "10")]
    Note(Note),
    /// Events that are missing in the capture.
    #[prost(message, tag = "11")]
    Dropped(Dropped),
    /// The program ended.
    #[prost(message, tag = "12")]
    ProcessEnded(ProcessEnded),
    /// The recording was finished. Only `Resolution` may follow. A capture without it is cut.
    #[prost(message, tag = "13")]
    End(End),
    /// A probe was paused to limit overhead.
    #[prost(message, tag = "14")]
    Missed(Missed),
    /// Memory of the program, read apart from events.
    #[prost(message, tag = "15")]
    Memory(Memory),
    /// The kernel's state of a thread.
    #[prost(message, tag = "16")]
    ThreadState(ThreadState),
    /// The program was stopped for some time.
    #[prost(message, tag = "17")]
    Standstill(Standstill),
    /// Hits of a probe are missing from here on, or no longer missing.
    #[prost(message, tag = "18")]
    Gap(Gap),
    /// The recorder may have stopped threads.
    #[prost(message, tag = "19")]
    Stood(Stood),
    /// The processor times of threads, as the kernel counts them.
    #[prost(message, tag = "20")]
    CpuTimes(CpuTimes),
    /// The recorder read all threads, like `unspool inspect`.
    #[prost(message, tag = "21")]
    Inspection(Inspection),
    /// The total of stops that are too short to be recorded one by one.
    #[prost(message, tag = "22")]
    ShortStops(ShortStops),
    /// Facts from the program's files about its stacks, at the end of the recording.
    #[prost(message, tag = "23")]
    Resolution(Resolution),
    /// A thread's activity in the kernel while the program ran.
    #[prost(message, tag = "25")]
    Blocked(Blocked),
    /// When threads ran, could have run, or were blocked.
    #[prost(message, tag = "26")]
    Schedule(Schedule),
    /// The program started another process.
    #[prost(message, tag = "27")]
    ProcessStarted(ProcessStarted),
    /// Where threads ran, at regular intervals of their processor time.
    #[prost(message, tag = "28")]
    Samples(Samples),
    /// When threads ran of processes that the program created.
    #[prost(message, tag = "29")]
    Processes(Schedule),
    /// Executable memory without a file was found.
    #[prost(message, tag = "31")]
    GeneratedCode(GeneratedCode),
    /// A thread of another process was created.
    #[prost(message, tag = "32")]
    CreationStack(CreationStack),
    /// Threads waited at this place in futex calls.
    #[prost(message, tag = "33")]
    FutexPlace(FutexPlace),
    /// What the system call of an inspected thread works on.
    #[prost(message, tag = "34")]
    CallSubject(CallSubject),
    /// The threads of several processes that still waited after all were inspected.
    #[prost(message, tag = "35")]
    Unchanged(Unchanged),
}

/// The messages in a block's batch: one record each, or none if its kind is unknown.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Envelope {
    #[prost(
        oneof = "Record",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 26, 27, 28, 29, 31, 32, 33, 34, 35"
    )]
    pub(crate) record: Option<Record>,
}

macro_rules! into_record {
    ($($name:ident)*) => {$(
        impl From<$name> for Record {
            fn from(record: $name) -> Record {
                Record::$name(record)
            }
        }
    )*};
}
into_record!(Header Target ModuleLoaded ModuleUnloaded ThreadSeen ThreadName ThreadExited Probe Event Note Dropped
    ProcessEnded End Missed Memory ThreadState Standstill Gap Stood CpuTimes Inspection
    ShortStops Resolution Blocked Schedule ProcessStarted Samples GeneratedCode CreationStack
    FutexPlace CallSubject Unchanged);

/// A thread was seen for the first time.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadSeen {
    /// Kernel thread id. After a [`ThreadExited`] with the same id it is another thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// Its name (`comm`); empty if unknown.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Time of observation.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
    /// It already ran when the recording started, so its creation was not observed.
    #[prost(bool, tag = "4")]
    pub existed_before: bool,
    /// The thread that created it, if the server reported it. The last call of a creation function
    /// in that thread is this thread's creation.
    #[prost(uint64, optional, tag = "5")]
    pub creator_tid: Option<u64>,
    /// Its thread pointer at its start, if the server reported it.
    #[prost(uint64, optional, tag = "6")]
    pub thread_pointer: Option<u64>,
}

/// A thread's name changed since it was last read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadName {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// Its new name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Time at which it was read.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
}

/// A thread ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadExited {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// Time of its end, or of the observation that it is missing.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// Exit code, if the server reported one.
    #[prost(sint64, optional, tag = "3")]
    pub code: Option<i64>,
    /// Whether the server reported the exit when it happened. Otherwise the thread was missing from
    /// a list, and ended some time before `time_ns`.
    #[prost(bool, tag = "4")]
    pub exact: bool,
    /// The cause of its end.
    #[prost(enumeration = "ThreadEnd", tag = "5")]
    pub by: i32,
}

/// The cause of a thread's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ThreadEnd {
    /// Not stated, or unknown to this version.
    Unspecified = 0,
    /// It exited. Before version 1.19 also: the process exited or executed another program.
    Exited = 1,
    /// A signal that ended the whole process killed it.
    Killed = 2,
    /// Another thread ended it: the process exited, or executed another program. (Since 1.19)
    KilledByExit = 3,
}

/// The importance of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Severity {
    /// Good to know.
    Info = 0,
    /// The report is incomplete.
    Warning = 1,
    /// The requested data could not be recorded.
    Error = 2,
}

/// A message from the recorder to the reader of the report.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Note {
    /// Time of the note.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Its importance.
    #[prost(enumeration = "Severity", tag = "2")]
    pub severity: i32,
    /// The message.
    #[prost(string, tag = "3")]
    pub text: String,
    /// Its subject.
    #[prost(enumeration = "NoteTopic", tag = "4")]
    pub topic: i32,
}

/// The subject of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum NoteTopic {
    /// The recording as a whole.
    Recording = 0,
    /// How calls were recorded.
    Calls = 1,
}

/// Events that are missing in the capture.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Dropped {
    /// The probe of the events, or [`SNAPSHOT_PROBE`] for any.
    #[prost(uint32, tag = "1")]
    pub probe: u32,
    /// Number of events since the last such record of this probe.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// Time of observation.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
}

/// A probe was paused to limit overhead. All values are totals, so the last record of a probe
/// replaces the earlier ones.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Missed {
    /// The probe.
    #[prost(uint32, tag = "1")]
    pub probe: u32,
    /// Number of pauses.
    #[prost(uint64, tag = "2")]
    pub pauses: u64,
    /// Total duration of the pauses in nanoseconds.
    #[prost(uint64, tag = "3")]
    pub paused_ns: u64,
    /// Estimated number of hits during the pauses.
    #[prost(uint64, tag = "4")]
    pub hits: u64,
    /// Time of these totals.
    #[prost(uint64, tag = "5")]
    pub time_ns: u64,
}

/// The change in the recording of a probe's hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum GapKind {
    /// Not stated.
    Unspecified = 0,
    /// They are not recorded from here on, to limit overhead.
    Paused = 1,
    /// They are recorded again.
    Resumed = 2,
    /// Some are missing at this point.
    Dropped = 3,
}

/// The place in the order of events where hits of a probe are missing. Without such records, the
/// hits that [`Missed`] and [`Dropped`] count may be missing anywhere.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Gap {
    /// The probe.
    #[prost(uint32, tag = "1")]
    pub probe: u32,
    /// The change in the recording of its hits.
    #[prost(enumeration = "GapKind", tag = "2")]
    pub kind: i32,
    /// Approximate time; the order of records says what came before and after.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
}

/// Memory of the program, read apart from events, such as a lock's owner.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Memory {
    /// Time of the read.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Address of the first byte.
    #[prost(uint64, tag = "2")]
    pub address: u64,
    /// The bytes; empty if they could not be read.
    #[prost(bytes = "vec", tag = "3")]
    pub bytes: Vec<u8>,
}

/// The kernel's state of a thread.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadState {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// Time of the read.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// The letter of its state (proc(5)) before the recorder stopped it, e.g. `S`; empty if
    /// unknown.
    #[prost(string, tag = "3")]
    pub state: String,
    /// The signals that its process handles; bit 0 is signal 1 (`SigCgt` in proc(5)).
    #[prost(fixed64, optional, tag = "4")]
    pub handled_signals: Option<u64>,
    /// The thread id that the program itself uses, which differs from `tid` if the program runs in
    /// its own PID namespace. None if unknown.
    #[prost(uint64, optional, tag = "5")]
    pub own_tid: Option<u64>,
    /// True if its cgroup has frozen its process, as `docker pause` does.
    #[prost(bool, tag = "6")]
    pub frozen: bool,
    /// The other processes that run in its memory, as after vfork(2). (Since 1.20)
    #[prost(uint64, repeated, tag = "7")]
    pub memory_users: Vec<u64>,
    /// Addresses of futex words in memory that its process shares with no other. (Since 1.25)
    #[prost(uint64, repeated, tag = "8")]
    pub private_words: Vec<u64>,
    /// The signals that its process's timers of real time send (timer_create(2)); bit 0 is signal
    /// 1. (Since 1.26)
    #[prost(fixed64, tag = "9")]
    pub timer_signals: u64,
    /// The thread that traces the process. Its stops wake threads, and end no wait. (Since 1.26)
    #[prost(uint64, optional, tag = "10")]
    pub tracer_tid: Option<u64>,
}

/// No thread of the program executed during this time, so everything read in between belongs to one
/// moment.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Standstill {
    /// Start.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// End.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
}

/// The reason why threads were stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StallCause {
    /// The server waited for a processor, or for a client that did not read.
    Unspecified = 0,
    /// The recorder needed the program stopped: at the start, to insert probes, or to read threads.
    Halted = 1,
}

/// The recorder or its server stopped a thread of the program, or may have, during this time.
///
/// The record is written when the recorder learns of it, before or after the events of that time.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Stood {
    /// Start.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// End.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
    /// The reason.
    #[prost(enumeration = "StallCause", tag = "3")]
    pub cause: i32,
}

/// Stops of less than a millisecond each, which have no [`Stood`] record. The last record has the
/// totals.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ShortStops {
    /// Time of these totals.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Number of stops.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// Total duration in nanoseconds.
    #[prost(uint64, tag = "3")]
    pub total_ns: u64,
}

/// The event that caused the threads to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Occasion {
    /// Not stated, or unknown to this version.
    Unspecified = 0,
    /// The user ended the recording while the program ran.
    Request = 1,
    /// A signal that ends most programs was about to be delivered.
    Signal = 2,
    /// The program was about to exit.
    Exit = 3,
}

/// The recorder read all threads. The snapshots without a probe and the [`Memory`], [`ThreadState`]
/// and [`Standstill`] records with times from `from_ns` to `to_ns` belong to this reading. They
/// precede this record.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Inspection {
    /// Start of the reading.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// End of the reading.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
    /// The event that caused it.
    #[prost(enumeration = "Occasion", tag = "3")]
    pub occasion: i32,
    /// For a signal: its Linux number.
    #[prost(uint32, optional, tag = "4")]
    pub signal: Option<u32>,
}

/// A thread's activity in the kernel, read from `/proc` while the program ran. The thread had not
/// run since the previous read of processor times. It is blocked until a [`CpuTimes`] record
/// contains it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Blocked {
    /// Time of the read.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// The thread.
    #[prost(uint64, tag = "2")]
    pub tid: u64,
    /// Time of the previous read; the thread has not run since.
    #[prost(uint64, tag = "3")]
    pub since_ns: u64,
    /// The system call's number on the target. None if the thread is in no system call (a page
    /// fault).
    #[prost(uint64, optional, tag = "4")]
    pub number: Option<u64>,
    /// The system call's arguments.
    #[prost(uint64, repeated, tag = "5")]
    pub args: Vec<u64>,
    /// The file whose descriptor is the first argument, as `/proc/PID/fd` names it.
    #[prost(string, tag = "6")]
    pub file: String,
    /// The thread's program counter.
    #[prost(uint64, tag = "7")]
    pub pc: u64,
    /// Its stack pointer.
    #[prost(uint64, tag = "8")]
    pub sp: u64,
    /// These two registers and the top of the stack. None if the thread was last seen at the same
    /// place.
    #[prost(message, optional, tag = "9")]
    pub snapshot: Option<Snapshot>,
}

/// The program started another process, which is not recorded. A record without a creator
/// says what the process of the latest record with this id executed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessStarted {
    /// When it was started; in a later record of the process, when it executed the file.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// The new process.
    #[prost(uint64, tag = "2")]
    pub pid: u64,
    /// The thread that started it; none if this record says what an earlier process executed.
    #[prost(uint64, optional, tag = "3")]
    pub creator_tid: Option<u64>,
    /// Path of the file that it executed; empty if it is not known, or if it executed none.
    #[prost(string, tag = "4")]
    pub executable: String,
}

/// The program ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessEnded {
    /// Time of its end.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Its exit code, if it exited.
    #[prost(sint32, optional, tag = "2")]
    pub exit_code: Option<i32>,
    /// The Linux signal that ended it, if any.
    #[prost(uint32, optional, tag = "3")]
    pub signal: Option<u32>,
}

/// The reason why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EndReason {
    /// Not stated, or unknown to this version.
    Unspecified = 0,
    /// The program ended.
    ProgramEnded = 1,
    /// The user interrupted the recording.
    Interrupted = 2,
    /// The recorder detached as requested; the program continued.
    Detached = 3,
    /// The connection to the server was lost.
    ConnectionLost = 4,
    /// Recording failed; `detail` has the reason.
    Error = 5,
}

/// The recording was finished.
#[derive(Clone, PartialEq, prost::Message)]
pub struct End {
    /// The reason.
    #[prost(enumeration = "EndReason", tag = "1")]
    pub reason: i32,
    /// Time of the end.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// Details, if there are any.
    #[prost(string, tag = "3")]
    pub detail: String,
}
