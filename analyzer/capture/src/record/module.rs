//! The records of images that are mapped and unmapped.

/// An image was mapped.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModuleLoaded {
    /// Number of this mapping in the capture; never reused.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Path on the target, or a name in brackets such as `[vdso]`.
    #[prost(string, tag = "2")]
    pub path: String,
    /// avma = svma + bias, wrapping.
    #[prost(uint64, tag = "3")]
    pub bias: u64,
    /// First mapped address. 0 with `end` 0 if only the bias is known.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// Address after the last mapped one.
    #[prost(uint64, tag = "5")]
    pub end: u64,
    /// Build-id as bytes; empty if there is none or it could not be read.
    #[prost(bytes = "vec", tag = "6")]
    pub build_id: Vec<u8>,
    /// Time of observation; 0 if it was mapped from the start.
    #[prost(uint64, tag = "7")]
    pub time_ns: u64,
    /// Whether this is the program's executable.
    #[prost(bool, tag = "8")]
    pub executable: bool,
    /// The path by which the executable was started (`AT_EXECFN`): a link to it, a script that it
    /// interprets, or its own path. Empty if unknown.
    #[prost(string, tag = "9")]
    pub started_as: String,
    /// Whether [`started_as`](Self::started_as) names the executable itself: a link to it, not a
    /// script.
    #[prost(bool, tag = "10")]
    pub started_by_link: bool,
    /// Number of the file among those that had this path and no build-id during the recording,
    /// from 0. A file that is mapped again keeps its number. `None` if the recorder did not compare
    /// the files.
    #[prost(uint32, optional, tag = "11")]
    pub file_number: Option<u32>,
}

/// An image was unmapped.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModuleUnloaded {
    /// The image's [`ModuleLoaded::id`].
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Time of observation.
    #[prost(uint64, tag = "2")]
    pub time_ns: u64,
}
