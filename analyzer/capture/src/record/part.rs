//! Records of further processes in a capture. Separate from the records themselves, because readers
//! of one process never see these messages.

/// A message in a batch with a record of a further process.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartEnvelope {
    #[prost(message, optional, tag = "30")]
    pub(crate) part: Option<Part>,
}

/// A record of a further process. Each process has the records of a capture of its own; they share
/// the file and the clock.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Part {
    /// The number of the process: 1 for the second one.
    #[prost(uint32, tag = "1")]
    pub(crate) process: u32,
    /// The encoded envelope of the record.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) envelope: Vec<u8>,
}
