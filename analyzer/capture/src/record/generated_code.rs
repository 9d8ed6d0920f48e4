//! The record of memory that holds code without a file.

/// Executable memory without a file was found, such as that of a JIT compiler. An address in a
/// mapped module is the module's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GeneratedCode {
    /// Time of observation.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// First addresses.
    #[prost(uint64, repeated, tag = "2")]
    pub starts: Vec<u64>,
    /// The addresses after the last ones.
    #[prost(uint64, repeated, tag = "3")]
    pub ends: Vec<u64>,
}

impl GeneratedCode {
    /// The ranges.
    pub fn ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        let ranges = self.starts.iter().zip(&self.ends);
        ranges.map(|(start, end)| *start..*end)
    }
}
