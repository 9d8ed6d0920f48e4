//! The client: one session with a server, as typed requests. Each file below holds one subject of
//! the protocol; this one holds what they share: handshake, request and reply, the current thread.

pub(crate) mod batch;
pub(crate) mod execution;
pub(crate) mod host_file;
mod memory;
mod objects;
mod registers;
mod threads;

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::connection::Connection;
use crate::description::TargetDescription;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::features::Features;
use crate::stream::Stream;

/// How a session is held.
pub struct ClientOptions {
    /// How long to wait for the answer to one request, and for the connection. 10 s by default.
    pub timeout: Duration,
    /// Where the transcript of the session goes, see [`crate::transcript`].
    pub log: Option<Box<dyn Write + Send>>,
    /// gdb's name of the architecture, for servers without target.xml: the registers are then
    /// laid out as gdb documents for it. Not used where the server describes its target.
    pub architecture: Option<String>,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            timeout: Duration::from_secs(10),
            log: None,
            architecture: None,
        }
    }
}

/// A session with a server.
pub struct Client {
    connection: Connection,
    features: Features,
    description: TargetDescription,
}

impl Client {
    /// Connects and shakes hands: `qSupported`, `QStartNoAckMode` if offered, target.xml. The
    /// target's state is not asked for yet, see [`Client::stop_reason`].
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Client, Error> {
        todo!()
    }

    /// As [`Client::connect`], over a stream that is connected already.
    pub fn over(stream: impl Into<Stream>, options: ClientOptions) -> Result<Client, Error> {
        todo!()
    }

    /// What the server can do.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The target's registers and architecture.
    pub fn description(&self) -> &TargetDescription {
        &self.description
    }

    /// Where the target's console output (`O` packets) goes. Without a sink it is dropped.
    pub fn set_console(&mut self, sink: Box<dyn Write + Send>) {
        todo!()
    }

    /// Sends a packet as it stands (escaped, without frame) and returns the reply as it stands.
    pub fn raw(&mut self, packet: &[u8]) -> Result<Vec<u8>, Error> {
        todo!()
    }

    /// Runs a command of the server's own (`qRcmd`, gdb's `monitor`) and returns its output.
    pub fn monitor(&mut self, command: &str) -> Result<Vec<u8>, Error> {
        todo!()
    }

    /// The connection, for callers that speak packets themselves.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl AsFd for Client {
    /// The descriptor to poll for input. Call [`Client::wait`] once before polling: what has been
    /// read already does not make it readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
