//! A raw client of the GDB remote protocol, for tests that send single packets.
//!
//! It does not use the project's own crate, so that an error there cannot hide one in the stub.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Reads what there is. A read with a time limit is interrupted if this process is stopped and
/// continued; it is repeated then.
pub(crate) fn read_some(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A connection without acknowledgements.
#[derive(Debug)]
pub struct Wire<S> {
    stream: S,
    buffer: Vec<u8>,
}

/// A parsed stop reply.
#[derive(Debug)]
pub struct Stop {
    /// The text of the packet.
    pub text: String,
    /// The thread that stopped.
    pub tid: u32,
    /// The thread's process.
    pub pid: u32,
}

impl Wire<TcpStream> {
    /// Connects and performs the handshake.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Self::handshake(stream)
    }

    /// Like [`go`](Self::go), for a program that takes longer.
    pub fn go_within(&mut self, packet: &str, limit: Duration) -> Result<Result<Stop, String>> {
        self.stream.set_read_timeout(Some(limit))?;
        self.go(packet)
    }

    /// Connects as an observer.
    pub fn observe(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut wire = Self {
            stream,
            buffer: Vec::new(),
        };
        let features = wire.ask("qSupported:multiprocess+;UnspoolObserve+")?;
        ensure!(features.contains("UnspoolObserve+"), "{features}");
        let answer = wire.ask("QStartNoAckMode")?;
        ensure!(answer == "OK", "QStartNoAckMode: {answer}");
        wire.stream.write_all(b"+")?;
        Ok(wire)
    }
}

impl<S: Read + Write> Wire<S> {
    /// Performs the handshake on an open connection.
    pub fn handshake(stream: S) -> Result<Self> {
        let mut wire = Self {
            stream,
            buffer: Vec::new(),
        };
        wire.ask("qSupported:multiprocess+;swbreak+;no-resumed+")?;
        wire.stream.write_all(b"+")?;
        let answer = wire.ask("QStartNoAckMode")?;
        ensure!(answer == "OK", "QStartNoAckMode: {answer}");
        wire.stream.write_all(b"+")?;
        Ok(wire)
    }

    /// Sends a packet and returns the answer's body.
    pub fn ask(&mut self, body: &str) -> Result<String> {
        self.send(body)?;
        self.receive().with_context(|| format!("after {body}"))
    }

    /// Sends a packet.
    pub fn send(&mut self, body: &str) -> Result<()> {
        let sum = body.bytes().fold(0u8, u8::wrapping_add);
        Ok(self
            .stream
            .write_all(format!("${body}#{sum:02x}").as_bytes())?)
    }

    /// Sends an interrupt.
    pub fn interrupt(&mut self) -> Result<()> {
        Ok(self.stream.write_all(&[3])?)
    }

    /// The next packet's body, as text.
    pub fn receive(&mut self) -> Result<String> {
        loop {
            let start = self.buffer.iter().position(|byte| *byte == b'$');
            // A notification may come before it.
            let end = start.and_then(|start| {
                let end = self.buffer[start..].iter().position(|byte| *byte == b'#');
                end.map(|end| start + end)
            });
            if let (Some(start), Some(end)) = (start, end)
                && self.buffer.len() >= end + 3
            {
                let body = String::from_utf8_lossy(&self.buffer[start + 1..end]).into_owned();
                self.buffer.drain(..end + 3);
                return Ok(body);
            }
            self.fill()?;
        }
    }

    /// Sends a packet and returns the answer's body as bytes.
    pub fn ask_bytes(&mut self, body: &str) -> Result<Vec<u8>> {
        self.send(body)?;
        loop {
            let start = self
                .buffer
                .iter()
                .position(|byte| matches!(byte, b'$' | b'%'));
            let end = self.buffer.iter().position(|byte| *byte == b'#');
            if let (Some(start), Some(end)) = (start, end)
                && self.buffer.len() >= end + 3
            {
                let notice = self.buffer[start] == b'%';
                let body = self.buffer[start + 1..end].to_vec();
                self.buffer.drain(..end + 3);
                if !notice {
                    return Ok(body);
                }
                continue;
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        let mut chunk = [0; 65536];
        let got = read_some(&mut self.stream, &mut chunk)?;
        if got == 0 {
            bail!("the server is gone");
        }
        self.buffer.extend_from_slice(&chunk[..got]);
        Ok(())
    }

    /// Resumes with this packet. Returns the next stop, or the text of an end (`W...`).
    pub fn go(&mut self, packet: &str) -> Result<Result<Stop, String>> {
        let text = self.ask(packet)?;
        if !text.starts_with('T') {
            return Ok(Err(text));
        }
        let (pid, tid) = field(&text, "thread")
            .and_then(|id| id.strip_prefix('p')?.split_once('.'))
            .with_context(|| format!("no thread in {text}"))?;
        let number = |digits| u32::from_str_radix(digits, 16);
        let (pid, tid) = (number(pid)?, number(tid)?);
        Ok(Ok(Stop { text, tid, pid }))
    }
}

impl Stop {
    /// A register in the stop reply.
    pub fn register(&self, number: u32) -> Option<u64> {
        let digits = field(&self.text, &format!("{number:02x}"))?;
        let unused = 64_usize.checked_sub(4 * digits.len())?;
        let value = u64::from_str_radix(digits, 16).ok()?;
        Some((value << unused).swap_bytes())
    }

    /// Whether the stop is at a breakpoint.
    pub fn is_breakpoint(&self) -> bool {
        self.text.starts_with("T05swbreak:")
    }
}

fn field<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    reply[3..].split(';').find_map(|field| {
        let (key, value) = field.split_once(':')?;
        (key == name).then_some(value)
    })
}
