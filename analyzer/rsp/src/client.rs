//! The client: one session with a server, as typed requests.
//!
//! This file holds what all requests share: handshake, request and reply, the current thread. Each
//! file below it holds one subject of the protocol.

pub(crate) mod batch;
pub(crate) mod execution;
mod handshake;
pub(crate) mod host_file;
mod memory;
mod objects;
pub(crate) mod observe;
mod registers;
pub(crate) mod samples;
pub(crate) mod schedule;
mod threads;
mod trace;

use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::connection::{Connection, is_console, shown};
use crate::description::TargetDescription;
use crate::error::Error;
use crate::features::Features;
use crate::reply::Reply;
use crate::samples::SampleDecoder;
use crate::thread::{ThreadEntry, ThreadId};

/// Options of a session.
pub struct ClientOptions {
    /// Time limit of each request and of the connection; 10 s by default.
    pub timeout: Duration,
    /// Receives the transcript of the session (see [`crate::transcript`]). Each line is one write,
    /// so that a plain file is complete even if the process is killed.
    pub log: Option<Box<dyn Write + Send>>,
    /// gdb's name of the architecture, for servers without a usable target.xml. The register layout
    /// is then gdb's documented default. Ignored if the server describes its target.
    pub architecture: Option<String>,
    /// Observe and trace the target, and leave control to another client, if the server supports
    /// several clients (`unspool-stub`; see [`Client::is_observer`]).
    pub observe: bool,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            timeout: Duration::from_secs(10),
            log: None,
            architecture: None,
            observe: false,
        }
    }
}

/// A session with a server.
pub struct Client {
    connection: Connection,
    features: Features,
    description: TargetDescription,
    /// The architecture that the user named.
    architecture: Option<String>,
    console: Option<Box<dyn Write + Send>>,
    /// The thread that `g`, `m` and similar packets refer to, if known (`Hg`).
    selected: Option<ThreadId>,
    /// The last `Hc`, as sent.
    control: Option<String>,
    /// The reply to `vCont?`, once requested; empty if the server has no `vCont`.
    actions: Option<String>,
    running: bool,
    extended: bool,
    /// The process of the session, once a reply has named it.
    process: Option<u64>,
    /// The thread list, valid until the target runs, and whether it has names.
    threads: Option<(Vec<ThreadEntry>, bool)>,
    /// Decodes the server's samples, which refer to earlier ones.
    samples: SampleDecoder,
    /// Packets that the server does not support.
    lacking: BTreeSet<&'static str>,
}

impl Client {
    /// The server's features.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The target's registers and architecture. Empty while an extended-mode server has no process.
    /// [`Client::run`] and [`Client::attach`] update it.
    pub fn description(&self) -> &TargetDescription {
        &self.description
    }

    /// Sets where the target's console output (`O` packets) goes. Without a sink it is dropped.
    pub fn set_console(&mut self, sink: Box<dyn Write + Send>) {
        self.console = Some(sink);
    }

    /// Sends a payload unchanged, already escaped and without frame. Returns the reply unchanged.
    pub fn raw(&mut self, packet: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.request(packet)?.into_payload())
    }

    /// Runs a server-specific command (`qRcmd`, gdb's `monitor`) and returns its output.
    pub fn monitor(&mut self, command: &str) -> Result<Vec<u8>, Error> {
        let packet = format!("qRcmd,{}", crate::hex::encode(command.as_bytes()));
        self.needs_stop(packet.as_bytes())?;
        self.connection.send(packet.as_bytes())?;
        let mut output = Vec::new();
        loop {
            let payload = self.connection.receive_answer()?;
            if is_console(&payload) {
                output.extend(crate::hex::decode(&payload[1..]).unwrap_or_default());
                if output.len() > MAX_MONITOR_OUTPUT {
                    return Err(Error::TooLarge {
                        what: format!("the output of `{command}`"),
                        limit: MAX_MONITOR_OUTPUT as u64,
                    });
                }
                continue;
            }
            let reply = Reply::new(packet.as_bytes(), payload);
            if reply.payload()? != b"OK" {
                output.extend(reply.hex()?);
            }
            return Ok(output);
        }
    }

    /// The connection, for callers that exchange packets themselves.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Sends one request and reads its reply.
    fn request(&mut self, packet: impl AsRef<[u8]>) -> Result<Reply, Error> {
        let packet = packet.as_ref();
        self.needs_stop(packet)?;
        self.connection.send(packet)?;
        self.reply(packet)
    }

    /// Sends several requests; returns their replies in order. Without acknowledgements, all are
    /// sent before the first reply is read. An error means that the connection failed.
    fn requests(&mut self, packets: &[Vec<u8>]) -> Result<Vec<Reply>, Error> {
        let mut replies = Vec::with_capacity(packets.len());
        if self.connection.has_acks() {
            for packet in packets {
                replies.push(self.request(packet)?);
            }
            return Ok(replies);
        }
        if let Some(packet) = packets.first() {
            self.needs_stop(packet)?;
        }
        let mut rest = packets;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(one_write(rest));
            self.connection.send_all(now)?;
            for packet in now {
                replies.push(self.reply(packet)?);
            }
            rest = later;
        }
        Ok(replies)
    }

    /// Reads the reply to a request. Console output before it goes to the console.
    fn reply(&mut self, packet: &[u8]) -> Result<Reply, Error> {
        loop {
            let payload = self.connection.receive_answer()?;
            if !self.print(&payload) {
                return Ok(Reply::new(packet, payload));
            }
        }
    }

    /// Passes console output on. `false` if the packet is not console output.
    fn print(&mut self, payload: &[u8]) -> bool {
        if !is_console(payload) {
            return false;
        }
        if let Some(console) = &mut self.console {
            let output = crate::hex::decode(&payload[1..]).unwrap_or_default();
            // A console that is no longer read must not end the session.
            let _ = console.write_all(&output).and_then(|()| console.flush());
        }
        true
    }

    fn needs_stop(&self, packet: &[u8]) -> Result<(), Error> {
        match self.running {
            false => Ok(()),
            true => Err(Error::Running {
                packet: shown(packet),
            }),
        }
    }

    /// Records that the server lacks a packet, if the error says so.
    fn lacks(&mut self, packet: &'static str, result: Result<(), Error>) -> Result<bool, Error> {
        match result {
            Err(error) if error.is_unsupported() => {
                self.lacking.insert(packet);
                Ok(true)
            }
            result => result.map(|()| false),
        }
    }
}

/// Number of packets that can be sent before a reply must be read, limited by a socket's buffer.
/// With more, client and server could both wait for buffer space.
fn one_write(packets: &[Vec<u8>]) -> usize {
    const ROOM: usize = 32 << 10;
    let mut bytes = 0;
    let fits = packets.iter().take_while(|packet| {
        bytes += packet.len() + 4;
        bytes <= ROOM
    });
    fits.count().max(1).min(packets.len())
}

/// Maximum output of a `monitor` command, in bytes.
const MAX_MONITOR_OUTPUT: usize = 16 << 20;

impl AsFd for Client {
    /// The descriptor to poll for input while the target runs.
    ///
    /// Call [`Client::wait`] with a time of zero before polling, because input that was already
    /// read does not make the descriptor readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
