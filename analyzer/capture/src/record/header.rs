//! What a recording is of: the header, and the program and its machine.

/// How the recorder reached the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Source {
    /// Not stated.
    Unspecified = 0,
    /// The recorder started the program.
    Launched = 1,
    /// The recorder attached to a running process.
    Attached = 2,
    /// The recorder connected to a server that already had the program.
    Connected = 3,
    /// One inspection of a running program, not a recording.
    Inspected = 4,
}

/// Facts about the recording and the recorder.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    /// Minor version of the writer's format; [`Writer`](crate::Writer) sets it.
    #[prost(uint32, tag = "1")]
    pub format_version: u32,
    /// Name and version of the recorder, e.g. `unspool 0.1.0`.
    #[prost(string, tag = "2")]
    pub product: String,
    /// Wall-clock time at the start, in nanoseconds since 1970 UTC; 0 = unknown. For display only.
    #[prost(uint64, tag = "3")]
    pub start_unix_ns: u64,
    /// The recorder's command line.
    #[prost(string, repeated, tag = "4")]
    pub command: Vec<String>,
    /// How the recorder reached the program.
    #[prost(enumeration = "Source", tag = "5")]
    pub source: i32,
    /// Host name of the analyzer's machine; empty if unknown.
    #[prost(string, tag = "6")]
    pub host: String,
    /// The server's address if there is one, e.g. `board:2345`.
    #[prost(string, tag = "7")]
    pub endpoint: String,
    /// The copy of the target's file system given by `--sysroot`, an absolute path; empty if none.
    #[prost(string, tag = "8")]
    pub sysroot: String,
    /// The directories given by `--debug-dir`, absolute paths.
    #[prost(string, repeated, tag = "9")]
    pub debug_directories: Vec<String>,
    /// True if functions are recorded by name. (Since 1.13)
    #[prost(bool, optional, tag = "11")]
    pub traces_functions: Option<bool>,
}

/// The program and its machine.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Target {
    /// gdb's architecture name, e.g. `i386:x86-64`, `aarch64`, `arm`.
    #[prost(string, tag = "1")]
    pub arch: String,
    /// OS ABI in the target description, e.g. `GNU/Linux`; empty if not stated.
    #[prost(string, tag = "2")]
    pub osabi: String,
    /// The received documents of the target description.
    #[prost(message, repeated, tag = "3")]
    pub documents: Vec<Document>,
    /// The registers in the order of the `g` packet, which define the bytes of a
    /// [`Snapshot`](super::Snapshot).
    #[prost(message, repeated, tag = "4")]
    pub registers: Vec<RegisterLayout>,
    /// Process id; 0 = unknown.
    #[prost(uint64, tag = "5")]
    pub pid: u64,
    /// Path of the executable on the target; empty if unknown.
    #[prost(string, tag = "6")]
    pub executable: String,
    /// The target ran on the recording machine, so paths are this machine's paths.
    #[prost(bool, tag = "7")]
    pub local: bool,
    /// The server reported every new thread and its creator
    /// ([`creator_tid`](super::ThreadSeen::creator_tid)).
    #[prost(bool, tag = "8")]
    pub tells_creators: bool,
    /// Number of processors that the program could use; 0 = unknown.
    #[prost(uint32, tag = "9")]
    pub processors: u32,
    /// The process that had started it, or adopted it, when the recording began; 0 = unknown.
    #[prost(uint64, tag = "10")]
    pub parent_pid: u64,
}

/// One document of a target description.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Document {
    /// Its name in the request, e.g. `target.xml`.
    #[prost(string, tag = "1")]
    pub annex: String,
    /// Its text.
    #[prost(string, tag = "2")]
    pub xml: String,
}

/// The place of one register in a snapshot's register bytes.
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
    /// Offset of its first byte in [`Snapshot::registers`](super::Snapshot::registers).
    #[prost(uint32, tag = "4")]
    pub offset: u32,
}
