//! What the recorder's machine knew of the program's files: stacks, names and the like.
//!
//! Apart from the other records because nothing here was observed: it is what the analyzer made of
//! the observed bytes by files that may be gone when the capture is opened.

use super::Note;

/// Answers to what a report asks of the program's files. A capture may hold several of these, after
/// its [`End`](super::End). Their tables are one table each: an index counts from the first entry
/// of the first record.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resolution {
    /// Names, paths and sentences.
    #[prost(string, repeated, tag = "1")]
    pub strings: Vec<String>,
    /// Places in code or data.
    #[prost(message, repeated, tag = "2")]
    pub places: Vec<ResolvedPlace>,
    /// Frames of stacks.
    #[prost(message, repeated, tag = "3")]
    pub frames: Vec<ResolvedFrame>,
    /// Stacks.
    #[prost(message, repeated, tag = "4")]
    pub stacks: Vec<ResolvedStack>,
    /// Which snapshot has which stack.
    #[prost(message, repeated, tag = "5")]
    pub snapshots: Vec<SnapshotStack>,
    /// What is at addresses.
    #[prost(message, repeated, tag = "6")]
    pub addresses: Vec<AddressMeaning>,
    /// What was missing or doubtful in the files.
    #[prost(message, repeated, tag = "7")]
    pub notes: Vec<Note>,
    /// The C library, if it was asked for.
    #[prost(message, optional, tag = "8")]
    pub c_library: Option<CLibrary>,
    /// Answers that are missing because the resolution would have become too large.
    #[prost(uint64, tag = "9")]
    pub left_out: u64,
}

/// A place in code or data. Strings are indices into [`Resolution::strings`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResolvedPlace {
    /// Function or variable, demangled.
    #[prost(uint32, optional, tag = "1")]
    pub function: Option<u32>,
    /// Bytes from the beginning of the function or variable; from the module's svma 0 without one.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// The module's path on the target.
    #[prost(uint32, optional, tag = "3")]
    pub module: Option<u32>,
    /// The link by which the module was started.
    #[prost(uint32, optional, tag = "4")]
    pub link: Option<u32>,
    /// Address as the file states it.
    #[prost(uint64, optional, tag = "5")]
    pub svma: Option<u64>,
    /// Address as mapped.
    #[prost(uint64, tag = "6")]
    pub avma: u64,
    /// Source file.
    #[prost(uint32, optional, tag = "7")]
    pub file: Option<u32>,
    /// Line, from 1.
    #[prost(uint32, optional, tag = "8")]
    pub line: Option<u32>,
}

/// A frame of a stack; an inlined function has a frame of its own.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResolvedFrame {
    /// Index into [`Resolution::places`].
    #[prost(uint32, tag = "1")]
    pub place: u32,
    /// The function was inlined into the next frame's.
    #[prost(bool, tag = "2")]
    pub inlined: bool,
    /// How the frame was found, e.g. `cfi`: index into [`Resolution::strings`].
    #[prost(uint32, tag = "3")]
    pub provenance: u32,
    /// The name by which it was called, where it has none itself: index into [`Resolution::strings`].
    #[prost(uint32, optional, tag = "4")]
    pub called: Option<u32>,
}

/// A stack.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResolvedStack {
    /// Indices into [`Resolution::frames`], innermost first.
    #[prost(uint32, repeated, tag = "1")]
    pub frames: Vec<u32>,
    /// Why there are no more frames, if that is not the thread's first function: index into
    /// [`Resolution::strings`].
    #[prost(uint32, optional, tag = "2")]
    pub truncated: Option<u32>,
}

/// Which stack a snapshot has.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotStack {
    /// Hash of the snapshot, see docs/capture-format.md.
    #[prost(fixed64, tag = "1")]
    pub snapshot: u64,
    /// How many `ModuleLoaded` and `ModuleUnloaded` records come before the snapshot.
    #[prost(uint32, tag = "2")]
    pub mapping: u32,
    /// Index into [`Resolution::stacks`].
    #[prost(uint32, tag = "3")]
    pub stack: u32,
}

/// What was asked of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AddressAspect {
    /// Not said, or what this version does not know.
    Unspecified = 0,
    /// The function that contains it, without what was inlined. The answer is a place.
    Code = 1,
    /// The variable that contains it. The answer is a place.
    Data = 2,
    /// The pointer that the file has there. The answer is a value.
    Pointer = 3,
    /// The bytes that the file has there. The answer is bytes.
    Bytes = 4,
    /// The symbol that is no function's, and the offset into it. The answer is a name.
    Symbol = 5,
}

/// What is at an address. Without an answer there is nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AddressMeaning {
    /// What was asked.
    #[prost(enumeration = "AddressAspect", tag = "1")]
    pub aspect: i32,
    /// The address as mapped.
    #[prost(uint64, tag = "2")]
    pub avma: u64,
    /// How many `ModuleLoaded` and `ModuleUnloaded` records come before the moment meant.
    #[prost(uint32, tag = "3")]
    pub mapping: u32,
    /// Of bytes: how many were asked for.
    #[prost(uint32, tag = "4")]
    pub len: u32,
    /// Index into [`Resolution::places`].
    #[prost(uint32, optional, tag = "5")]
    pub place: Option<u32>,
    /// The pointer, as mapped.
    #[prost(uint64, optional, tag = "6")]
    pub value: Option<u64>,
    /// The bytes.
    #[prost(bytes = "vec", optional, tag = "7")]
    pub bytes: Option<Vec<u8>>,
    /// Index into [`Resolution::strings`].
    #[prost(uint32, optional, tag = "8")]
    pub name: Option<u32>,
}

/// Whose C library it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CLibraryFamily {
    /// Not known; `CLibrary.error` says why.
    Unspecified = 0,
    /// The GNU C library.
    Glibc = 1,
    /// musl.
    Musl = 2,
}

/// The program's C library.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CLibrary {
    /// Whose it is.
    #[prost(enumeration = "CLibraryFamily", tag = "1")]
    pub family: i32,
    /// Of glibc: the minor version of 2, if it is known.
    #[prost(uint32, optional, tag = "2")]
    pub minor_version: Option<u32>,
    /// The file that it is, or that has it inside.
    #[prost(string, tag = "3")]
    pub path: String,
    /// It is part of a static program.
    #[prost(bool, tag = "4")]
    pub inside: bool,
    /// Why it is not known.
    #[prost(string, tag = "5")]
    pub error: String,
}
