//! Places whose execution is recorded, and what was seen there: events, with registers and stack.
//!
//! Apart from the other records because these are nearly all of a capture, and the only ones with bytes of the program's.

use super::RegisterLayout;

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
    /// No function: the thread was stopped and looked at. Events may use [`SNAPSHOT_PROBE`](super::SNAPSHOT_PROBE) undeclared.
    Snapshot = 6,
    /// Entry of an instrumented function; args = the registers in which arguments are passed.
    Enter = 7,
    /// A return instruction of instrumented functions; args = the result.
    Leave = 8,
    /// The instruction of a futex system call that waits, or may wait or wake, as its args say; or the one before it. args =
    /// those of the call.
    FutexWait = 9,
    /// The instruction after it; args = the result.
    FutexReturn = 10,
    /// The instruction of a futex system call that wakes, or the one before it; args = those of the call.
    FutexWake = 11,
}

impl ProbeKind {
    /// Whether the events are the beginnings and ends of calls, of which there may be millions.
    pub fn is_of_calls(self) -> bool {
        matches!(
            self,
            ProbeKind::Enter
                | ProbeKind::Leave
                | ProbeKind::FutexWait
                | ProbeKind::FutexReturn
                | ProbeKind::FutexWake
        )
    }
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
    /// Of an end: the probes at the beginnings of the calls that may end here.
    #[prost(uint32, repeated, tag = "6")]
    pub ends: Vec<u32>,
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
    /// The [`Probe::id`], or [`SNAPSHOT_PROBE`](super::SNAPSHOT_PROBE).
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
    /// There is no snapshot, for the program counters of the stack, innermost first, are those of
    /// the event with this [`Event::seq`], which has one.
    #[prost(uint64, optional, tag = "9")]
    pub same_stack_as: Option<u64>,
    /// Of the beginning and the end of a call, by which they belong together: the stack pointer
    /// when the function was entered, or at the system call.
    #[prost(uint64, optional, tag = "10")]
    pub frame: Option<u64>,
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
    /// The object that a call is about, such as a mutex.
    Object = 3,
    /// What a creation's last argument points to: the beginning of the object that says what a thread of libstdc++ calls.
    State = 4,
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
    /// The registers in the layout of [`Target::registers`](super::Target::registers).
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
