//! The client: one session with a server, as typed requests. Each file below holds one subject of
//! the protocol; this one holds what they share: handshake, request and reply, the current thread.

pub(crate) mod batch;
pub(crate) mod execution;
mod handshake;
pub(crate) mod host_file;
mod memory;
mod objects;
pub(crate) mod observe;
mod registers;
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
use crate::thread::{ThreadEntry, ThreadId};

/// How a session is held.
pub struct ClientOptions {
    /// How long to wait for the answer to one request, and for the connection. 10 s by default.
    pub timeout: Duration,
    /// Where the transcript of the session goes, see [`crate::transcript`]. Each line is one
    /// write, so a plain file is whole even if the process is killed.
    pub log: Option<Box<dyn Write + Send>>,
    /// gdb's name of the architecture, for servers without a usable target.xml: the registers are
    /// then laid out as gdb documents for it. Not used where the server describes its target.
    pub architecture: Option<String>,
    /// To look at the target and trace it, and to leave its control to others, where the server can serve several clients
    /// (our stub; see [`Client::is_observer`]).
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
    /// The architecture the user named.
    architecture: Option<String>,
    console: Option<Box<dyn Write + Send>>,
    /// The thread that `g`, `m` and their like are about, where known (`Hg`).
    selected: Option<ThreadId>,
    /// The last `Hc`, as sent.
    control: Option<String>,
    /// What `vCont?` answered, once asked; empty if the server has no `vCont`.
    actions: Option<String>,
    running: bool,
    extended: bool,
    /// The process the session is about, once a reply named it.
    process: Option<u64>,
    /// The threads, while the target has not run since they were listed, and whether with names.
    threads: Option<(Vec<ThreadEntry>, bool)>,
    /// Packets the server was found not to know.
    lacking: BTreeSet<&'static str>,
}

impl Client {
    /// What the server can do.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// The target's registers and architecture. Empty while an extended-mode server has no
    /// process; read anew by [`Client::run`] and [`Client::attach`].
    pub fn description(&self) -> &TargetDescription {
        &self.description
    }

    /// Where the target's console output (`O` packets) goes. Without a sink it is dropped.
    pub fn set_console(&mut self, sink: Box<dyn Write + Send>) {
        self.console = Some(sink);
    }

    /// Sends a packet as it stands (escaped, without frame) and returns the reply as it stands.
    pub fn raw(&mut self, packet: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.request(packet)?.into_payload())
    }

    /// Runs a command of the server's own (`qRcmd`, gdb's `monitor`) and returns its output.
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

    /// The connection, for callers that speak packets themselves.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// One request, one reply.
    fn request(&mut self, packet: impl AsRef<[u8]>) -> Result<Reply, Error> {
        let packet = packet.as_ref();
        self.needs_stop(packet)?;
        self.connection.send(packet)?;
        self.reply(packet)
    }

    /// Several requests; their replies in order. Without acknowledgements all are sent before the
    /// first reply is read. An error is one of the connection.
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

    /// The reply to a request; console output before it goes to the console.
    fn reply(&mut self, packet: &[u8]) -> Result<Reply, Error> {
        loop {
            let payload = self.connection.receive_answer()?;
            if !self.print(&payload) {
                return Ok(Reply::new(packet, payload));
            }
        }
    }

    /// Passes console output on; `false` if the packet is none.
    fn print(&mut self, payload: &[u8]) -> bool {
        if !is_console(payload) {
            return false;
        }
        if let Some(console) = &mut self.console {
            let output = crate::hex::decode(&payload[1..]).unwrap_or_default();
            // A console nobody reads any more is no reason to fail the session.
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

    /// Notes that the server lacks a packet if that is what the error says.
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

/// How many of the packets may go out before a reply is read: as many as a socket takes even if
/// the server, busy with its replies, reads none of them. Else both sides could wait for room.
fn one_write(packets: &[Vec<u8>]) -> usize {
    const ROOM: usize = 32 << 10;
    let mut bytes = 0;
    let fits = packets.iter().take_while(|packet| {
        bytes += packet.len() + 4;
        bytes <= ROOM
    });
    fits.count().max(1).min(packets.len())
}

/// Bound on what a `monitor` command may print.
const MAX_MONITOR_OUTPUT: usize = 16 << 20;

impl AsFd for Client {
    /// The descriptor to poll for input while the target runs. Call [`Client::wait`] with a time
    /// of zero before polling: what has been read already does not make it readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
