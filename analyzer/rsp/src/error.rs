//! The errors of a session. Each message states the expectation, the observation, and what to do.

use std::io;
use std::time::Duration;

use crate::description::DescriptionError;
use crate::endpoint::Endpoint;

/// An error between this client and a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection could be made.
    #[error(
        "cannot connect to {endpoint}: {source}; check the address and that a gdb server listens there"
    )]
    Connect {
        /// The address.
        endpoint: Endpoint,
        /// The cause.
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error("the connection to the server failed: {0}; connect again")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection {during}; see what it printed, then start it again")]
    Closed {
        /// The current operation.
        during: String,
    },
    /// The received bytes are not the gdb remote protocol.
    #[error(
        "expected the gdb remote protocol, got {seen}; check that the address is that of a gdb server"
    )]
    NotRsp {
        /// The start of the received bytes, in printable form.
        seen: String,
    },
    /// A packet's checksum was wrong more often than the retry limit allows.
    #[error(
        "{tries} damaged packet(s) in a row (checksum {stated:02x} stated, {computed:02x} computed); the line to the server loses bytes: check it and connect again"
    )]
    Checksum {
        /// Number of damaged packets.
        tries: u32,
        /// The checksum in the packet.
        stated: u8,
        /// The checksum of the content.
        computed: u8,
    },
    /// The server requested the same packet repeatedly.
    #[error(
        "the server refused `{packet}` as damaged {tries} times; the line to the server loses bytes: check it and connect again"
    )]
    Refused {
        /// The packet.
        packet: String,
        /// Number of times it was sent.
        tries: u32,
    },
    /// A packet is longer than the limit.
    #[error(
        "the server sent a packet of more than {limit} bytes; the server is broken, or no gdb server: restart it"
    )]
    Oversized {
        /// The limit in bytes.
        limit: usize,
    },
    /// A packet's run-length or escape coding is wrong.
    #[error(
        "cannot decode a packet of the server ({problem} in `{packet}`); restart the server, and report this if it happens again"
    )]
    Coding {
        /// The problem.
        problem: &'static str,
        /// The start of the packet.
        packet: String,
    },
    /// The server has not answered at all since the connection was made.
    #[error(
        "the server accepts the connection but does not answer within {} s; it may be serving \
         another client (gdbserver serves one at a time, qemu-arm only one in total): end that \
         client, or start the server again",
        seconds(.timeout)
    )]
    Silent {
        /// The time limit.
        timeout: Duration,
    },
    /// The server did not answer in time.
    #[error(
        "no answer to `{packet}` within {} s; the server hangs or the link to it is down: check both and connect again",
        seconds(.timeout)
    )]
    Timeout {
        /// The request.
        packet: String,
        /// The time limit.
        timeout: Duration,
    },
    /// An earlier error left the connection in an unknown state. A late answer could be taken for
    /// the answer to another request, so no more requests are sent.
    #[error("{because}")]
    Broken {
        /// The text of the earlier error.
        because: String,
    },
    /// The server does not support the packet (empty reply).
    #[error(
        "the server does not support `{packet}`; use another server, or leave out the option \
         that needs it"
    )]
    Unsupported {
        /// The packet's name.
        packet: String,
    },
    /// The server answered with an error.
    #[error("{}", remote_text(packet, error))]
    Remote {
        /// The request.
        packet: String,
        /// The answer.
        error: RemoteError,
    },
    /// An answer has the wrong form.
    #[error(
        "expected {expected} in answer to `{packet}`, got `{reply}`; restart the server, and report this if it happens again"
    )]
    Malformed {
        /// The request.
        packet: String,
        /// The expected form.
        expected: &'static str,
        /// The start of the answer.
        reply: String,
    },
    /// Memory of the target cannot be read or written.
    #[error(
        "cannot access the target's memory at {address:#x}; check the address against the target's memory map"
    )]
    Memory {
        /// The first inaccessible byte.
        address: u64,
    },
    /// An object of the target is larger than the limit.
    #[error("{what} is larger than {limit} bytes; raise the limit if this is expected")]
    TooLarge {
        /// The object.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file operation on the target failed.
    #[error("cannot {operation} {path} on the target: {reason}; check the path there")]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: String,
        /// The host's error, by name where RSP defines it.
        reason: String,
    },
    /// The server sends no target description, and the caller named no architecture.
    #[error(
        "the server offers no target description (target.xml), so its registers are unknown; name the architecture: {}",
        crate::description::builtin::NAMES
    )]
    NoDescription,
    /// The caller named an architecture that has no built-in layout.
    #[error(
        "no built-in registers for architecture {name:?}; name one of: {}",
        crate::description::builtin::NAMES
    )]
    UnknownArchitecture {
        /// The given name.
        name: String,
    },
    /// The target description cannot be used.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The request needs a stopped target, but the target runs.
    #[error(
        "`{packet}` needs a stopped target, but the target runs; wait until it stops, or \
         interrupt it first"
    )]
    Running {
        /// The request.
        packet: String,
    },
    /// The client waited for a target that was not resumed.
    #[error("the target does not run, so it cannot stop; resume it first")]
    NotRunning,
    /// A ticket was used with another batch's answers, or twice.
    #[error("the ticket belongs to another batch, or was used already; take each answer once")]
    Ticket,
    /// The target has no such register, or the bytes do not fit it.
    #[error("cannot write {got} bytes to register number {number}; {expected}")]
    Register {
        /// The register's number in the target description.
        number: u32,
        /// Number of bytes given.
        got: usize,
        /// The expected value.
        expected: String,
    },
}

fn remote_text(packet: &str, error: &RemoteError) -> String {
    match error {
        RemoteError::Message(message) => format!("the server refused `{packet}`: {message}"),
        _ => format!("the server answered `{packet}` with {error}; see what the server printed"),
    }
}

impl Error {
    /// The server's error message, if it sent one.
    pub fn remote_message(&self) -> Option<&str> {
        match self {
            Error::Remote {
                error: RemoteError::Message(words),
                ..
            } => Some(words),
            _ => None,
        }
    }

    /// Whether the server only lacks the packet.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Error::Unsupported { .. })
    }

    /// Whether this error ends the session.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            Error::Connect { .. }
                | Error::Io(_)
                | Error::Closed { .. }
                | Error::NotRsp { .. }
                | Error::Checksum { .. }
                | Error::Refused { .. }
                | Error::Oversized { .. }
                | Error::Coding { .. }
                | Error::Silent { .. }
                | Error::Timeout { .. }
                | Error::Broken { .. }
        )
    }
}

/// An error reply: `E NN` or `E.message` (RSP, "Standard Replies").
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// `E NN`; the numbers have no defined meaning.
    #[error("error {0:#04x}")]
    Code(u8),
    /// `E.message`.
    #[error("the error \"{0}\"")]
    Message(String),
}

fn seconds(duration: &Duration) -> String {
    format!("{}", (duration.as_secs_f64() * 1000.0).round() / 1000.0)
}
