//! Packets over a stream.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::stream::Stream;

/// How packets are exchanged.
pub struct ConnectionOptions {
    /// How long to wait for an acknowledgement, for an answer, or to get rid of a packet.
    pub timeout: Duration,
    /// Where the transcript goes.
    pub log: Option<Box<dyn Write + Send>>,
    /// The longest packet accepted, in bytes.
    pub max_packet: usize,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        ConnectionOptions {
            timeout: Duration::from_secs(10),
            log: None,
            max_packet: 1 << 20,
        }
    }
}

/// One connection to a server.
pub struct Connection {
    stream: Stream,
}

/// What arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A packet's payload.
    Packet(Vec<u8>),
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
