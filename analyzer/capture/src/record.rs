//! The records of a capture, as protobuf messages.
//!
//! They are derived in Rust rather than generated, so that building needs no `protoc`; the same
//! schema as a `.proto` stands in `docs/capture-format.md`, and field numbers here and there are
//! the same forever. All times are monotonic nanoseconds since the recording began; all thread ids
//! are the kernel's.

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
    /// The recording ended in order. Always the last record; a capture without it is cut.
    #[prost(message, tag = "13")]
    End(End),
    /// A probe was paused, to spare the program.
    #[prost(message, tag = "14")]
    Missed(Missed),
}

/// The message a block's batch is made of: one record, or none that this version knows.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Envelope {
    #[prost(
        oneof = "Record",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14"
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
    ProcessEnded End Missed);

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
}

/// What a probe's place does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ProbeKind {
    /// Not said, or a kind this version does not know.
    Unspecified = 0,
    /// Entry of a function that creates a thread; args = handle pointer, attributes, start routine, its argument.
    Create = 1,
    /// First instruction of a start routine; args = its argument.
    Start = 2,
    /// Entry of a function that joins a thread; args = handle.
    Join = 3,
    /// Entry of a function that detaches a thread; args = handle.
    Detach = 4,
    /// Entry of a function by which a thread ends itself.
    Exit = 5,
    /// No function: the thread was stopped and looked at. Events may use [`SNAPSHOT_PROBE`] undeclared.
    Snapshot = 6,
}

/// A place whose execution is recorded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Probe {
    /// Number by which events name it; not 0.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Function it stands in, e.g. `pthread_create`.
    #[prost(string, tag = "2")]
    pub function: String,
    /// Its address.
    #[prost(uint64, tag = "3")]
    pub avma: u64,
    /// Module it stands in, if known.
    #[prost(uint32, optional, tag = "4")]
    pub module: Option<u32>,
    /// What the place does.
    #[prost(enumeration = "ProbeKind", tag = "5")]
    pub kind: i32,
}

/// A probe was hit, or a thread was looked at.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// Counts up by one per event of the recording; a gap is an event that was lost.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// When.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// In which thread.
    #[prost(uint64, tag = "3")]
    pub tid: u64,
    /// On which CPU, if known.
    #[prost(uint32, optional, tag = "4")]
    pub cpu: Option<u32>,
    /// The [`Probe::id`], or [`SNAPSHOT_PROBE`].
    #[prost(uint32, tag = "5")]
    pub probe: u32,
    /// The function's arguments as the calling convention passes them.
    #[prost(uint64, repeated, tag = "6")]
    pub args: Vec<u64>,
    /// Memory that was read along with the event.
    #[prost(message, repeated, tag = "7")]
    pub reads: Vec<Read>,
    /// Registers and stack.
    #[prost(message, optional, tag = "8")]
    pub snapshot: Option<Snapshot>,
}

/// What a piece of memory is to its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ReadRole {
    /// Not said, or a role this version does not know.
    Unspecified = 0,
    /// The thread attributes a creation was given.
    Attr = 1,
    /// A thread handle, at the address where a creation was told to put it.
    Handle = 2,
}

/// Memory that was read along with an event.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Read {
    /// What it is.
    #[prost(enumeration = "ReadRole", tag = "1")]
    pub role: i32,
    /// Where it was.
    #[prost(uint64, tag = "2")]
    pub address: u64,
    /// What was there.
    #[prost(bytes = "vec", tag = "3")]
    pub bytes: Vec<u8>,
}

/// Registers and as much of the stack as was read, of one thread at one moment.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Snapshot {
    /// The registers in the layout of [`Target::registers`].
    #[prost(bytes = "vec", tag = "1")]
    pub registers: Vec<u8>,
    /// Bit `i % 8` of byte `i / 8` says that `registers[i]` was available. Empty = all were.
    #[prost(bytes = "vec", tag = "2")]
    pub known: Vec<u8>,
    /// Stack memory: only what was read, in no particular order.
    #[prost(message, repeated, tag = "3")]
    pub chunks: Vec<Chunk>,
    /// Why the stack is shorter than wanted, if it is.
    #[prost(string, tag = "4")]
    pub note: String,
}

impl Snapshot {
    /// A snapshot of registers alone; `known[i]` says whether byte `i` was available.
    pub fn of_registers(registers: Vec<u8>, known: &[bool]) -> Snapshot {
        let mut mask = Vec::new();
        if known.iter().any(|known| !known) {
            mask = vec![0; registers.len().div_ceil(8)];
            for (i, _) in known
                .iter()
                .enumerate()
                .take(registers.len())
                .filter(|(_, k)| **k)
            {
                mask[i / 8] |= 1 << (i % 8);
            }
        }
        Snapshot {
            registers,
            known: mask,
            ..Snapshot::default()
        }
    }

    /// The little-endian value of a register of up to 64 bits; `None` if any byte is missing.
    pub fn register(&self, layout: &RegisterLayout) -> Option<u64> {
        let size = (layout.bits as usize).div_ceil(8);
        let offset = layout.offset as usize;
        if size == 0 || size > 8 {
            return None;
        }
        let bytes = self.registers.get(offset..offset.checked_add(size)?)?;
        let known = |i: usize| {
            self.known.is_empty() || self.known.get(i / 8).is_some_and(|b| b >> (i % 8) & 1 != 0)
        };
        if !(offset..offset + size).all(known) {
            return None;
        }
        let mut value = [0; 8];
        value[..size].copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }
}

/// A run of memory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Chunk {
    /// Address of its first byte.
    #[prost(uint64, tag = "1")]
    pub address: u64,
    /// Its bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub bytes: Vec<u8>,
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
