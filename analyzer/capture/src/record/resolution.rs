//! Facts from the program's files on the recording machine: stacks, names and similar.
//!
//! Separate from the other records because these are not observations. The analyzer derived them
//! from observed bytes and from files that may be missing when the capture is opened.

use super::Note;

/// The facts that a report needs from the program's files. A capture may have several of these
/// records after its [`End`](super::End). Each of their tables continues the one before: an index
/// counts from the first entry of the first record.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resolution {
    /// Names, paths and messages.
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
    /// The stack of each snapshot.
    #[prost(message, repeated, tag = "5")]
    pub snapshots: Vec<SnapshotStack>,
    /// Facts about addresses.
    #[prost(message, repeated, tag = "6")]
    pub addresses: Vec<AddressMeaning>,
    /// Missing or doubtful parts of the files.
    #[prost(message, repeated, tag = "7")]
    pub notes: Vec<Note>,
    /// The C library, if it was needed.
    #[prost(message, optional, tag = "8")]
    pub c_library: Option<CLibrary>,
    /// Number of facts left out because the resolution would have become too large.
    #[prost(uint64, tag = "9")]
    pub left_out: u64,
    /// Modules whose file or debug file a server sent: indices into `strings`.
    #[prost(uint32, repeated, tag = "10")]
    pub downloaded: Vec<u32>,
}

/// A place in code or data. Strings are indices into [`Resolution::strings`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResolvedPlace {
    /// Function or variable, demangled.
    #[prost(uint32, optional, tag = "1")]
    pub function: Option<u32>,
    /// Offset from the start of the function or variable, or without one from the module's svma 0.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// The module's path on the target.
    #[prost(uint32, optional, tag = "3")]
    pub module: Option<u32>,
    /// The link through which the module was started.
    #[prost(uint32, optional, tag = "4")]
    pub link: Option<u32>,
    /// Address in the file (svma).
    #[prost(uint64, optional, tag = "5")]
    pub svma: Option<u64>,
    /// Mapped address (avma).
    #[prost(uint64, tag = "6")]
    pub avma: u64,
    /// Source file.
    #[prost(uint32, optional, tag = "7")]
    pub file: Option<u32>,
    /// Line, from 1.
    #[prost(uint32, optional, tag = "8")]
    pub line: Option<u32>,
}

/// A frame of a stack; an inlined function has its own frame.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResolvedFrame {
    /// Index into [`Resolution::places`].
    #[prost(uint32, tag = "1")]
    pub place: u32,
    /// Whether the function was inlined into the next frame's function.
    #[prost(bool, tag = "2")]
    pub inlined: bool,
    /// How the frame was found, e.g. `cfi`: index into [`Resolution::strings`].
    #[prost(uint32, tag = "3")]
    pub provenance: u32,
    /// The name in the call, if the function itself has none: index into [`Resolution::strings`].
    #[prost(uint32, optional, tag = "4")]
    pub called: Option<u32>,
}

/// A stack.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResolvedStack {
    /// Indices into [`Resolution::frames`], innermost first.
    #[prost(uint32, repeated, tag = "1")]
    pub frames: Vec<u32>,
    /// The reason why there are no more frames, if the last is not the thread's first function:
    /// index into [`Resolution::strings`].
    #[prost(uint32, optional, tag = "2")]
    pub truncated: Option<u32>,
}

/// The stack of a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotStack {
    /// Hash of the snapshot, see docs/reference/capture-format.md.
    #[prost(fixed64, tag = "1")]
    pub snapshot: u64,
    /// Number of `ModuleLoaded` and `ModuleUnloaded` records before the snapshot.
    #[prost(uint32, tag = "2")]
    pub mapping: u32,
    /// Index into [`Resolution::stacks`].
    #[prost(uint32, tag = "3")]
    pub stack: u32,
}

/// The kind of fact about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AddressAspect {
    /// Not stated, or unknown to this version.
    Unspecified = 0,
    /// The function that contains it, without inlined functions. The result is a place.
    Code = 1,
    /// The variable that contains it. The result is a place.
    Data = 2,
    /// The pointer that the file contains there. The result is a value.
    Pointer = 3,
    /// The bytes that the file contains there.
    Bytes = 4,
    /// The symbol that is not a function, and the offset in it. The result is a name.
    Symbol = 5,
    /// The possible effects of code that continues from there. The result is a value. Bit 0: it may
    /// end the wait of another thread, or that is unknown. Bit 1: it may return to its caller.
    /// (Since 1.12)
    Onward = 6,
    /// The start of the function that contains it, by symbols or else by the code. The result is a
    /// place. (Since 1.19)
    Start = 7,
}

/// A fact about an address. Without a result there is nothing at the address.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AddressMeaning {
    /// The kind of fact.
    #[prost(enumeration = "AddressAspect", tag = "1")]
    pub aspect: i32,
    /// The mapped address (avma).
    #[prost(uint64, tag = "2")]
    pub avma: u64,
    /// Number of `ModuleLoaded` and `ModuleUnloaded` records before the time in question.
    #[prost(uint32, tag = "3")]
    pub mapping: u32,
    /// For bytes: the requested number.
    #[prost(uint32, tag = "4")]
    pub len: u32,
    /// Index into [`Resolution::places`].
    #[prost(uint32, optional, tag = "5")]
    pub place: Option<u32>,
    /// The pointer, as a mapped address.
    #[prost(uint64, optional, tag = "6")]
    pub value: Option<u64>,
    /// The bytes.
    #[prost(bytes = "vec", optional, tag = "7")]
    pub bytes: Option<Vec<u8>>,
    /// Index into [`Resolution::strings`].
    #[prost(uint32, optional, tag = "8")]
    pub name: Option<u32>,
}

/// The implementation of a C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CLibraryFamily {
    /// Unknown; `CLibrary.error` has the reason.
    Unspecified = 0,
    /// The GNU C library.
    Glibc = 1,
    /// musl.
    Musl = 2,
}

/// The program's C library.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CLibrary {
    /// The implementation.
    #[prost(enumeration = "CLibraryFamily", tag = "1")]
    pub family: i32,
    /// For glibc: the minor version of 2, if known.
    #[prost(uint32, optional, tag = "2")]
    pub minor_version: Option<u32>,
    /// The file of the library, or the program that contains it.
    #[prost(string, tag = "3")]
    pub path: String,
    /// Whether it is part of a static program.
    #[prost(bool, tag = "4")]
    pub inside: bool,
    /// The reason why it is unknown.
    #[prost(string, tag = "5")]
    pub error: String,
}
