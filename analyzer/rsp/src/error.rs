//! The errors of a session. Each says what was expected, what was seen and what to do.

use std::io;
use std::time::Duration;

use crate::description::DescriptionError;
use crate::endpoint::Endpoint;

/// What can go wrong between this client and a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection could be made.
    #[error(
        "cannot connect to {endpoint}: {source}; check the address and that a gdb server listens there"
    )]
    Connect {
        /// Where to.
        endpoint: Endpoint,
        /// Why not.
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error("the connection to the server failed: {0}; connect again")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection {during}; see what it printed, then start it again")]
    Closed {
        /// What was going on.
        during: String,
    },
    /// What arrives is not the protocol.
    #[error(
        "expected the gdb remote protocol, got {seen}; check that the address is that of a gdb server"
    )]
    NotRsp {
        /// The beginning of what arrived, printable.
        seen: String,
    },
    /// A packet's checksum was wrong more often than we ask again.
    #[error(
        "{tries} damaged packet(s) in a row (checksum {stated:02x} stated, {computed:02x} computed); the line to the server loses bytes: check it and connect again"
    )]
    Checksum {
        /// How often the packet came damaged.
        tries: u32,
        /// The checksum in the packet.
        stated: u8,
        /// The checksum of its contents.
        computed: u8,
    },
    /// The server asked for the same packet again and again.
    #[error(
        "the server refused `{packet}` as damaged {tries} times; the line to the server loses bytes: check it and connect again"
    )]
    Refused {
        /// The packet.
        packet: String,
        /// How often it was sent.
        tries: u32,
    },
    /// A packet is longer than any answer may be.
    #[error(
        "the server sent a packet of more than {limit} bytes; it is broken, or not a gdb server: restart it"
    )]
    Oversized {
        /// The bound, in bytes.
        limit: usize,
    },
    /// A packet's run-length or escape coding is wrong.
    #[error(
        "cannot decode a packet of the server ({problem} in `{packet}`); restart the server, and report this if it happens again"
    )]
    Coding {
        /// What is wrong.
        problem: &'static str,
        /// The packet's beginning.
        packet: String,
    },
    /// No answer to anything, from the beginning.
    #[error(
        "the server accepts the connection and does not answer within {} s; it may be serving another client (gdbserver and \
         qemu serve one at a time, qemu-arm one in all): end that client, or start the server again",
        seconds(.timeout)
    )]
    Silent {
        /// How long was waited.
        timeout: Duration,
    },
    /// No answer in time.
    #[error(
        "no answer to `{packet}` within {} s; the server hangs or the link to it is down: check both and connect again",
        seconds(.timeout)
    )]
    Timeout {
        /// The request.
        packet: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// An earlier error left the connection in an unknown state: an answer that comes late could
    /// be taken for that to another request, so no request is sent any more.
    #[error("{because}")]
    Broken {
        /// The earlier error's text.
        because: String,
    },
    /// The server does not know the packet (empty reply).
    #[error(
        "the server does not support `{packet}`; use another server, or do without what needs it"
    )]
    Unsupported {
        /// The packet's name.
        packet: String,
    },
    /// The server answered with an error.
    #[error("the server answered `{packet}` with {error}; see what the server printed")]
    Remote {
        /// The request.
        packet: String,
        /// The answer.
        error: RemoteError,
    },
    /// An answer could not be understood.
    #[error(
        "expected {expected} in answer to `{packet}`, got `{reply}`; restart the server, and report this if it happens again"
    )]
    Malformed {
        /// The request.
        packet: String,
        /// What would be right.
        expected: &'static str,
        /// The answer's beginning.
        reply: String,
    },
    /// Memory of the target cannot be read or written.
    #[error(
        "cannot access the target's memory at {address:#x}; check the address against the target's memory map"
    )]
    Memory {
        /// The first byte that is out of reach.
        address: u64,
    },
    /// An object of the target is larger than the caller allows or anything sane is.
    #[error("{what} is larger than {limit} bytes; raise the limit if that is right")]
    TooLarge {
        /// What was to be read.
        what: String,
        /// The bound.
        limit: u64,
    },
    /// A file operation on the target failed.
    #[error("cannot {operation} {path} on the target: {reason}; check the path there")]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: String,
        /// The host errno, in words where RSP defines it.
        reason: String,
    },
    /// The server sends no target description, and the caller named no architecture.
    #[error(
        "the server offers no target description (target.xml), so its registers are unknown; name the architecture: {}",
        crate::description::builtin::NAMES
    )]
    NoDescription,
    /// The caller named an architecture without built-in layout.
    #[error(
        "no built-in registers for architecture {name:?}; name one of: {}",
        crate::description::builtin::NAMES
    )]
    UnknownArchitecture {
        /// The name given.
        name: String,
    },
    /// The target description cannot be used.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// A request that needs a stopped target while it runs.
    #[error(
        "`{packet}` needs a stopped target, but it runs; wait for it to stop or interrupt it first"
    )]
    Running {
        /// The request.
        packet: String,
    },
    /// A wait for a target that was not resumed.
    #[error("the target does not run, so it cannot stop; resume it first")]
    NotRunning,
    /// A ticket was given to the answers of another batch, or twice.
    #[error("the ticket is not of this batch, or was used already; take each answer once")]
    Ticket,
    /// The target has no such register, or the bytes do not fit it.
    #[error("cannot write {got} bytes to register number {number}; {expected}")]
    Register {
        /// The register's number in the target description.
        number: u32,
        /// How many bytes were given.
        got: usize,
        /// What would be right.
        expected: String,
    },
}

impl Error {
    /// What the server says in words, if it does.
    pub fn remote_message(&self) -> Option<&str> {
        match self {
            Error::Remote {
                error: RemoteError::Message(words),
                ..
            } => Some(words),
            _ => None,
        }
    }

    /// Whether the server simply lacks the packet.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Error::Unsupported { .. })
    }

    /// Whether the session cannot go on after this error.
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
    /// `E NN`; the numbers mean nothing in particular.
    #[error("error {0:#04x}")]
    Code(u8),
    /// `E.message`.
    #[error("the error \"{0}\"")]
    Message(String),
}

fn seconds(duration: &Duration) -> String {
    format!("{}", (duration.as_secs_f64() * 1000.0).round() / 1000.0)
}
