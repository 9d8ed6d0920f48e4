//! The records of a capture, as protobuf messages.
//!
//! They are derived in Rust rather than generated, so that building needs no `protoc`; the same
//! schema as a `.proto` stands in `docs/reference/capture-format.md`, and field numbers here and there are
//! the same forever. All times are monotonic nanoseconds since the recording began; all thread ids
//! are the kernel's.

mod event;
mod resolution;

pub use event::{Chunk, Event, Probe, ProbeKind, Read, ReadRole, Snapshot};
pub use resolution::{
    AddressAspect, AddressMeaning, CLibrary, CLibraryFamily, Resolution, ResolvedFrame,
    ResolvedPlace, ResolvedStack, SnapshotStack,
};

/// Probe id of an event that no probe caused: the thread was stopped and looked at.
pub const SNAPSHOT_PROBE: u32 = 0;

/// One observation. A capture is a sequence of these, in the order in which they were made.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Record {
    /// What is being recorded, and by whom. The first record.
    #[prost(message, tag = "1")]
    Header(Header),
    /// The program and its machine.
    #[prost(message, tag = "2")]
    Target(Target),
    /// An image was mapped.
    #[prost(message, tag = "3")]
    ModuleLoaded(ModuleLoaded),
    /// A mapped image went away.
    #[prost(message, tag = "4")]
    ModuleUnloaded(ModuleUnloaded),
    /// A thread was seen for the first time.
    #[prost(message, tag = "5")]
    ThreadSeen(ThreadSeen),
    /// A thread's name was read again and differs.
    #[prost(message, tag = "6")]
    ThreadName(ThreadName),
    /// A thread is gone.
    #[prost(message, tag = "7")]
    ThreadExited(ThreadExited),
    /// A place whose execution is recorded.
    #[prost(message, tag = "8")]
    Probe(Probe),
    /// A probe was hit, or a thread was looked at.
    #[prost(message, tag = "9")]
    Event(Event),
    /// A sentence from the recorder to whoever reads the report.
    #[prost(message, tag = "10")]
    Note(Note),
    /// Events that happened and are not in the capture.
    #[prost(message, tag = "11")]
    Dropped(Dropped),
    /// The program ended.
    #[prost(message, tag = "12")]
    ProcessEnded(ProcessEnded),
    /// The recording ended in order. Only `Resolution` may follow; a capture without it is cut.
    #[prost(message, tag = "13")]
    End(End),
    /// A probe was paused, to spare the program.
    #[prost(message, tag = "14")]
    Missed(Missed),
    /// Memory of the program was read, other than with an event.
    #[prost(message, tag = "15")]
    Memory(Memory),
    /// What the kernel says of a thread.
    #[prost(message, tag = "16")]
    ThreadState(ThreadState),
    /// The program stood for a while.
    #[prost(message, tag = "17")]
    Standstill(Standstill),
    /// Hits of a probe are missing from here on, or no longer.
    #[prost(message, tag = "18")]
    Gap(Gap),
    /// Threads may have stood for the recorder.
    #[prost(message, tag = "19")]
    Stood(Stood),
    /// The kernel was asked what its threads had of the processors.
    #[prost(message, tag = "20")]
    CpuTimes(CpuTimes),
    /// All threads were read, as `unspool inspect` reads them.
    #[prost(message, tag = "21")]
    Inspection(Inspection),
    /// The sum of the stops that are too short to be recorded one by one.
    #[prost(message, tag = "22")]
    ShortStops(ShortStops),
    /// What the program's files said of its stacks when the recording ended.
    #[prost(message, tag = "23")]
    Resolution(Resolution),
    /// What a thread did in the kernel while the program ran.
    #[prost(message, tag = "25")]
    Blocked(Blocked),
}

/// The message a block's batch is made of: one record, or none that this version knows.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Envelope {
    #[prost(
        oneof = "Record",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25"
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
    ShortStops Resolution Blocked);

/// How the recording came to its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Source {
    /// Not said.
    Unspecified = 0,
    /// The recorder started the program.
    Launched = 1,
    /// The recorder attached to a running process.
    Attached = 2,
    /// The recorder connected to a server that had the program already.
    Connected = 3,
    /// One look at a running program, not a recording.
    Inspected = 4,
}

/// What is being recorded, and by whom.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    /// Minor version of the format the writer knew; [`Writer`](crate::Writer) sets it.
    #[prost(uint32, tag = "1")]
    pub format_version: u32,
    /// Name and version of the recorder, e.g. `unspool 0.1.0`.
    #[prost(string, tag = "2")]
    pub product: String,
    /// Wall clock at the beginning, nanoseconds since 1970 UTC; 0 = not known. For display only.
    #[prost(uint64, tag = "3")]
    pub start_unix_ns: u64,
    /// The recorder's command line.
    #[prost(string, repeated, tag = "4")]
    pub command: Vec<String>,
    /// How the recording came to its program.
    #[prost(enumeration = "Source", tag = "5")]
    pub source: i32,
    /// The machine the analyzer ran on (its host name), empty if not known.
    #[prost(string, tag = "6")]
    pub host: String,
    /// The server's address where there is one, e.g. `board:2345`.
    #[prost(string, tag = "7")]
    pub endpoint: String,
    /// The copy of the target's file system that the recorder was told of (`--sysroot`), an
    /// absolute path; empty if none.
    #[prost(string, tag = "8")]
    pub sysroot: String,
    /// Where the recorder looked for debug files (`--debug-dir`), absolute paths.
    #[prost(string, repeated, tag = "9")]
    pub debug_directories: Vec<String>,
}

/// The program and its machine.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Target {
    /// gdb's architecture name, e.g. `i386:x86-64`, `aarch64`, `arm`.
    #[prost(string, tag = "1")]
    pub arch: String,
    /// OS ABI as the target description names it, e.g. `GNU/Linux`; empty if not said.
    #[prost(string, tag = "2")]
    pub osabi: String,
    /// The target description's documents as they were received.
    #[prost(message, repeated, tag = "3")]
    pub documents: Vec<Document>,
    /// The registers in the order of the `g` packet: what the bytes of a [`Snapshot`] mean.
    #[prost(message, repeated, tag = "4")]
    pub registers: Vec<RegisterLayout>,
    /// Process id; 0 = not known.
    #[prost(uint64, tag = "5")]
    pub pid: u64,
    /// Path of the executable on the target; empty if not known.
    #[prost(string, tag = "6")]
    pub executable: String,
    /// The target ran on the recording machine: paths are this machine's paths.
    #[prost(bool, tag = "7")]
    pub local: bool,
    /// The server told of every new thread and who made it ([`ThreadSeen::creator_tid`]).
    #[prost(bool, tag = "8")]
    pub tells_creators: bool,
}

/// One document of a target description.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Document {
    /// Name it was asked for by, e.g. `target.xml`.
    #[prost(string, tag = "1")]
    pub annex: String,
    /// Its text.
    #[prost(string, tag = "2")]
    pub xml: String,
}

/// Where one register lies in a snapshot's register bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegisterLayout {
    /// Name from the target description, e.g. `rip`, `fs_base`, `x0`, `cpsr`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// gdb's register number.
    #[prost(uint32, tag = "2")]
    pub number: u32,
    /// Width in bits.
    #[prost(uint32, tag = "3")]
    pub bits: u32,
    /// Offset of its first byte in [`Snapshot::registers`].
    #[prost(uint32, tag = "4")]
    pub offset: u32,
}

/// An image was mapped.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModuleLoaded {
    /// Number by which the capture calls this mapping; never reused.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Path on the target, or a name in brackets such as `[vdso]`.
    #[prost(string, tag = "2")]
    pub path: String,
    /// avma = svma + bias, wrapping.
    #[prost(uint64, tag = "3")]
    pub bias: u64,
    /// First mapped address; 0 with `end` 0 if only the bias is known.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// Address after the last mapped one.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// Build-id as bytes; empty if it has none or could not be read.
    #[prost(bytes = "vec", tag = "6")]
    pub build_id: Vec<u8>,
    /// When it was seen; 0 for what was there from the beginning.
    #[prost(uint64, tag = "7")]
    pub time_ns: u64,
    /// This is the program's executable.
    #[prost(bool, tag = "8")]
    pub executable: bool,
    /// The path by which the executable was started (`AT_EXECFN`): a link to it, a script that it interprets, or its own; empty
    /// if not known.
    #[prost(string, tag = "9")]
    pub started_as: String,
    /// What [`started_as`](Self::started_as) names is the executable itself: a link to it, not a script.
    #[prost(bool, tag = "10")]
    pub started_by_link: bool,
}

/// A mapped image went away.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModuleUnloaded {
    /// The [`ModuleLoaded::id`].
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// When it was noticed.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
}

/// A thread was seen for the first time.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadSeen {
    /// Kernel thread id. After a [`ThreadExited`] of the same id it is another thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// Its name (`comm`), empty if not known.
    #[prost(string, tag = "2")]
    pub name: String,
    /// When it was seen.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
    /// It was running when the recording began: its creation was not observed.
    #[prost(bool, tag = "4")]
    pub existed_before: bool,
    /// The thread that made it, where the server told: the last call of a creation function in
    /// that thread is this one's creation.
    #[prost(uint64, optional, tag = "5")]
    pub creator_tid: Option<u64>,
    /// Its thread pointer when it began, where the server told.
    #[prost(uint64, optional, tag = "6")]
    pub thread_pointer: Option<u64>,
}

/// A thread's name was read again and differs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadName {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// Its name now.
    #[prost(string, tag = "2")]
    pub name: String,
    /// When it was read.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
}

/// A thread is gone.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadExited {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// When it ended, or when its absence was noticed.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// Exit code, where the server reported one.
    #[prost(sint64, optional, tag = "3")]
    pub code: Option<i64>,
    /// The server reported the exit as it happened; otherwise the thread was missing from a list,
    /// and ended at some time before `time_ns`.
    #[prost(bool, tag = "4")]
    pub exact: bool,
    /// By what it ended.
    #[prost(enumeration = "ThreadEnd", tag = "5")]
    pub by: i32,
}

/// By what a thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ThreadEnd {
    /// Not said, or what this version does not know.
    Unspecified = 0,
    /// It exited: by itself, or because the process did or executed another program.
    Exited = 1,
    /// A signal that ended the whole process killed it, too.
    Killed = 2,
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Severity {
    /// Good to know.
    Info = 0,
    /// Something is missing from the picture.
    Warning = 1,
    /// What was wanted could not be recorded.
    Error = 2,
}

/// A sentence from the recorder to whoever reads the report.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Note {
    /// When.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// How much it matters.
    #[prost(enumeration = "Severity", tag = "2")]
    pub severity: i32,
    /// The sentence.
    #[prost(string, tag = "3")]
    pub text: String,
}

/// Events that happened and are not in the capture.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Dropped {
    /// The probe they belonged to, or [`SNAPSHOT_PROBE`] for any.
    #[prost(uint32, tag = "1")]
    pub probe: u32,
    /// How many since the last such record of this probe.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// When it was noticed.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
}

/// A probe was paused, to spare the program: what is known of the hits that nobody saw. The last record of a probe says all.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Missed {
    /// The probe.
    #[prost(uint32, tag = "1")]
    pub probe: u32,
    /// How often it has been paused.
    #[prost(uint64, tag = "2")]
    pub pauses: u64,
    /// For how long altogether, nanoseconds.
    #[prost(uint64, tag = "3")]
    pub paused_ns: u64,
    /// About so many hits fell into these pauses, as far as that can be told.
    #[prost(uint64, tag = "4")]
    pub hits: u64,
    /// When this was so.
    #[prost(uint64, tag = "5")]
    pub time_ns: u64,
}

/// What becomes of a probe's hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum GapKind {
    /// Not said.
    Unspecified = 0,
    /// They are not recorded from here on, to spare the program.
    Paused = 1,
    /// They are recorded again.
    Resumed = 2,
    /// Some are missing just here.
    Dropped = 3,
}

/// Where in the order of events hits of a probe are missing. Without such records, what [`Missed`] and [`Dropped`] count may
/// be missing anywhere.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Gap {
    /// The probe.
    #[prost(uint32, tag = "1")]
    pub probe: u32,
    /// What becomes of its hits.
    #[prost(enumeration = "GapKind", tag = "2")]
    pub kind: i32,
    /// When, about; the order of records says what came before and what after.
    #[prost(uint64, tag = "3")]
    pub time_ns: u64,
}

/// Memory of the program was read, other than with an event: what a lock says of its holder, for one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Memory {
    /// When.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Address of the first byte.
    #[prost(uint64, tag = "2")]
    pub address: u64,
    /// What was there; nothing if it could not be read.
    #[prost(bytes = "vec", tag = "3")]
    pub bytes: Vec<u8>,
}

/// What the kernel says of a thread.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadState {
    /// The thread.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// When.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// The letter of its state (proc(5)), e.g. `S`, before it was stopped to be looked at; empty if not known.
    #[prost(string, tag = "3")]
    pub state: String,
    /// The signals that its process handles, signal 1 being bit 0 (`SigCgt` in proc(5)).
    #[prost(fixed64, optional, tag = "4")]
    pub handled_signals: Option<u64>,
    /// The id by which the program itself knows the thread: another where it runs in a PID namespace
    /// of its own. None if not known.
    #[prost(uint64, optional, tag = "5")]
    pub own_tid: Option<u64>,
}

/// No thread of the program executed anything from one moment to another, so that everything read
/// between them was so at once.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Standstill {
    /// From here.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// To here.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
}

/// Why threads were stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum StallCause {
    /// The server had to wait for a processor, or for a client that did not read.
    Unspecified = 0,
    /// The recorder needed the program stopped: at the start, to plant probes, to look at threads.
    Halted = 1,
}

/// A thread of the program was stopped, or may have been, from one moment to another, for the
/// recorder or its server. The record is written when the recorder hears of it, before or after the
/// events of that time.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Stood {
    /// From here.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// To here.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
    /// Why.
    #[prost(enumeration = "StallCause", tag = "3")]
    pub cause: i32,
}

/// Stops of less than a millisecond each, of which no [`Stood`] tells. The last record counts them
/// all.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ShortStops {
    /// When this was so.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// How many there were.
    #[prost(uint64, tag = "2")]
    pub count: u64,
    /// How long they took in total, nanoseconds.
    #[prost(uint64, tag = "3")]
    pub total_ns: u64,
}

/// What was about to happen when the threads were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Occasion {
    /// Not said, or an occasion this version does not know.
    Unspecified = 0,
    /// The recording was asked to end while the program ran.
    Request = 1,
    /// A signal was about to be delivered that ends most programs.
    Signal = 2,
    /// The program was about to exit.
    Exit = 3,
}

/// All threads were read. The snapshots without a probe, [`Memory`], [`ThreadState`] and
/// [`Standstill`] records with times from `from_ns` to `to_ns` belong to this reading; they stand
/// before this record.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Inspection {
    /// When reading began.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// When it was done.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
    /// What was about to happen.
    #[prost(enumeration = "Occasion", tag = "3")]
    pub occasion: i32,
    /// Of a signal: its Linux number.
    #[prost(uint32, optional, tag = "4")]
    pub signal: Option<u32>,
}

/// How long threads had been on a processor, and had waited for one, when the kernel was asked. A thread that is not named here and was
/// before, and has not ended, has the times that it had then: it waited for something else.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CpuTimes {
    /// When it was asked.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Threads whose times are others than before.
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<CpuTime>,
}

/// What a thread has had of the processors since it began.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct CpuTime {
    /// Whose time it is.
    #[prost(uint64, tag = "1")]
    pub tid: u64,
    /// So long it was on a processor.
    #[prost(uint64, tag = "2")]
    pub on_cpu_ns: u64,
    /// So long it could have run and waited for a processor.
    #[prost(uint64, tag = "3")]
    pub runnable_ns: u64,
}

/// What a thread did in the kernel: read from `/proc` while the program ran, when the thread had not
/// run since the kernel was asked last. It is blocked until a [`CpuTimes`] names it again.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Blocked {
    /// When it was read.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// The thread.
    #[prost(uint64, tag = "2")]
    pub tid: u64,
    /// When the kernel was asked before: the thread has not run since.
    #[prost(uint64, tag = "3")]
    pub since_ns: u64,
    /// The system call's number on the target; none if the thread is in no system call (a page fault).
    #[prost(uint64, optional, tag = "4")]
    pub number: Option<u64>,
    /// The call's arguments.
    #[prost(uint64, repeated, tag = "5")]
    pub args: Vec<u64>,
    /// The file of the descriptor that is the first argument, as `/proc/PID/fd` names it.
    #[prost(string, tag = "6")]
    pub file: String,
    /// The thread's program counter.
    #[prost(uint64, tag = "7")]
    pub pc: u64,
    /// Its stack pointer.
    #[prost(uint64, tag = "8")]
    pub sp: u64,
    /// These two registers and the stack's end; none if the thread was last seen at the same place.
    #[prost(message, optional, tag = "9")]
    pub snapshot: Option<Snapshot>,
}

/// The program ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessEnded {
    /// When.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Its exit code, if it exited.
    #[prost(sint32, optional, tag = "2")]
    pub exit_code: Option<i32>,
    /// The Linux signal that ended it, if one did.
    #[prost(uint32, optional, tag = "3")]
    pub signal: Option<u32>,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EndReason {
    /// Not said, or a reason this version does not know.
    Unspecified = 0,
    /// The program ended.
    ProgramEnded = 1,
    /// The user interrupted the recording.
    Interrupted = 2,
    /// The recorder let go of the program as asked; the program went on.
    Detached = 3,
    /// The server went away.
    ConnectionLost = 4,
    /// Recording failed; `detail` says how.
    Error = 5,
}

/// The recording ended in order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct End {
    /// Why.
    #[prost(enumeration = "EndReason", tag = "1")]
    pub reason: i32,
    /// When.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// A sentence, where there is more to say.
    #[prost(string, tag = "3")]
    pub detail: String,
}
