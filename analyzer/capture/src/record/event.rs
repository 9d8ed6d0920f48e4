//! Probes, and the events observed there, with registers and stack.
//!
//! In a file of their own, because events are most of a capture, and the only records with the
//! program's own bytes.

use super::RegisterLayout;

/// The role of a probe's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ProbeKind {
    /// Not stated, or unknown to this version.
    Unspecified = 0,
    /// Entry of a function that creates a thread; args = handle pointer, attributes, start routine,
    /// its argument.
    Create = 1,
    /// First instruction of a start routine; args = its argument.
    Start = 2,
    /// Entry of a function that joins a thread; args = handle.
    Join = 3,
    /// Entry of a function that detaches a thread; args = handle.
    Detach = 4,
    /// Entry of a function with which a thread ends itself.
    Exit = 5,
    /// No function: the recorder stopped the thread and read it. Events may use
    /// [`SNAPSHOT_PROBE`](super::SNAPSHOT_PROBE) without declaring it.
    Snapshot = 6,
    /// Entry of an instrumented function; args = the argument registers.
    Enter = 7,
    /// A return instruction of instrumented functions; args = the result.
    Leave = 8,
    /// A futex system call that waits, or may wait or wake, as its args say, or the instruction
    /// before it. args = those of the call.
    FutexWait = 9,
    /// The instruction after that system call; args = the result.
    FutexReturn = 10,
    /// A futex system call that wakes, or the instruction before it; args = those of the call.
    FutexWake = 11,
    /// Entry of `__cyg_profile_func_enter` or `__cyg_profile_func_exit`, which programs built with
    /// `-finstrument-functions` call; args = the function, its call site, the return address, and 0
    /// where the function begins or 1 where it ends.
    Hook = 12,
}

impl ProbeKind {
    /// Whether the events are starts and ends of calls, of which there may be millions.
    pub fn is_of_calls(self) -> bool {
        matches!(
            self,
            ProbeKind::Enter
                | ProbeKind::Leave
                | ProbeKind::FutexWait
                | ProbeKind::FutexReturn
                | ProbeKind::FutexWake
                | ProbeKind::Hook
        )
    }
}

/// A place whose execution is recorded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Probe {
    /// Number used in events; not 0.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// The function that contains the place, e.g. `pthread_create`.
    #[prost(string, tag = "2")]
    pub function: String,
    /// Its address.
    #[prost(uint64, tag = "3")]
    pub avma: u64,
    /// The module that contains the place, if known.
    #[prost(uint32, optional, tag = "4")]
    pub module: Option<u32>,
    /// The role of the place.
    #[prost(enumeration = "ProbeKind", tag = "5")]
    pub kind: i32,
    /// For a probe at the end of calls: the probes at the starts of these calls.
    #[prost(uint32, repeated, tag = "6")]
    pub ends: Vec<u32>,
}

/// A probe was hit, or the recorder read a thread.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// Sequence number of the recording's events; a gap is a lost event.
    #[prost(uint64, tag = "1")]
    pub seq: u64,
    /// Time of the event.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
    /// The thread.
    #[prost(uint64, tag = "3")]
    pub tid: u64,
    /// The CPU, if known.
    #[prost(uint32, optional, tag = "4")]
    pub cpu: Option<u32>,
    /// The [`Probe::id`], or [`SNAPSHOT_PROBE`](super::SNAPSHOT_PROBE).
    #[prost(uint32, tag = "5")]
    pub probe: u32,
    /// The function's arguments in the calling convention's order.
    #[prost(uint64, repeated, tag = "6")]
    pub args: Vec<u64>,
    /// Memory read together with the event.
    #[prost(message, repeated, tag = "7")]
    pub reads: Vec<Read>,
    /// Registers and stack.
    #[prost(message, optional, tag = "8")]
    pub snapshot: Option<Snapshot>,
    /// The [`Event::seq`] of an event with the same program counters on its stack; that event has
    /// the snapshot.
    #[prost(uint64, optional, tag = "9")]
    pub same_stack_as: Option<u64>,
    /// A value that the start and the end of a call share: the stack pointer at the function's
    /// entry, or at the system call.
    #[prost(uint64, optional, tag = "10")]
    pub frame: Option<u64>,
}

/// The role of a piece of memory in its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ReadRole {
    /// Not stated, or unknown to this version.
    Unspecified = 0,
    /// The thread attributes passed to a creation function.
    Attr = 1,
    /// A thread handle, at the address where a creation function stores it.
    Handle = 2,
    /// The object of a call, such as a mutex.
    Object = 3,
    /// The object that a creation's last argument points to; it shows which function a libstdc++
    /// thread calls.
    State = 4,
}

/// Memory read together with an event.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Read {
    /// Its role.
    #[prost(enumeration = "ReadRole", tag = "1")]
    pub role: i32,
    /// Its address.
    #[prost(uint64, tag = "2")]
    pub address: u64,
    /// Its content.
    #[prost(bytes = "vec", tag = "3")]
    pub bytes: Vec<u8>,
}

/// Registers and the part of the stack that was read, of one thread at one moment.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Snapshot {
    /// The registers in the layout of [`Target::registers`](super::Target::registers).
    #[prost(bytes = "vec", tag = "1")]
    pub registers: Vec<u8>,
    /// Bit `i % 8` of byte `i / 8` is set if `registers[i]` was available. Empty if all were.
    #[prost(bytes = "vec", tag = "2")]
    pub known: Vec<u8>,
    /// Stack memory that was read, unordered.
    #[prost(message, repeated, tag = "3")]
    pub chunks: Vec<Chunk>,
    /// The reason, if less of the stack was read than requested.
    #[prost(string, tag = "4")]
    pub note: String,
}

impl Snapshot {
    /// A snapshot of registers only. `known[i]` says whether byte `i` was available.
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

/// A contiguous range of memory.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Chunk {
    /// Address of its first byte.
    #[prost(uint64, tag = "1")]
    pub address: u64,
    /// Its bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub bytes: Vec<u8>,
}
