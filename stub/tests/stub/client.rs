//! A raw client that sends and receives packet bodies.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::target::{POINTER, event_timeout, kind};

pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    pub supported: String,
    /// The bodies of the notifications received so far.
    pub notifications: Vec<String>,
    /// The same bodies as bytes, still escaped.
    pub notified: Vec<Vec<u8>>,
}

impl Client {
    /// Connects without acknowledgements, with multiprocess and all stop reasons.
    pub fn connect(port: u16) -> Client {
        Client::connect_for(port, "swbreak+;exec-events+;no-resumed+;QThreadEvents+")
    }

    /// Like [`Client::connect`], but with these features.
    pub fn connect_for(port: u16, features: &str) -> Client {
        let mut client = Client::raw(port);
        client.supported = client.ask(&format!("qSupported:multiprocess+;{features}"));
        assert_eq!(client.ask("QStartNoAckMode"), "OK");
        client.write(b"+");
        client
    }

    /// Connects as an observer.
    pub fn observe(port: u16) -> Client {
        let mut client = Client::raw(port);
        client.supported = client.ask("qSupported:multiprocess+;UnspoolObserve+");
        assert!(client.supported.contains("UnspoolObserve+"));
        assert_eq!(client.ask("QStartNoAckMode"), "OK");
        client.write(b"+");
        client
    }

    /// Waits for a notification with this name, and returns the text after the name.
    pub fn told(&mut self, name: &str) -> String {
        let start = format!("{name}:");
        let known = self.notifications.iter();
        if let Some(index) = known.clone().position(|body| body.starts_with(&start)) {
            return self.notifications.remove(index)[start.len()..].to_owned();
        }
        loop {
            let body = self.notification();
            if let Some(rest) = body.strip_prefix(&start) {
                return rest.to_owned();
            }
            self.notifications.push(body);
        }
    }

    /// Connects and sends nothing.
    pub fn raw(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(event_timeout())).unwrap();
        Client {
            stream,
            buffer: Vec::new(),
            supported: String::new(),
            notifications: Vec::new(),
            notified: Vec::new(),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn byte(&mut self) -> Option<u8> {
        if self.buffer.is_empty() {
            let mut chunk = [0; 65536];
            // A wait with a time limit ends early if this process is stopped and continued.
            let got = loop {
                match self.stream.read(&mut chunk) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => break other.ok()?,
                }
            };
            self.buffer.extend(chunk[..got].iter().rev());
        }
        self.buffer.pop()
    }

    pub fn send(&mut self, body: &[u8]) {
        let sum = body.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        let mut packet = vec![b'$'];
        packet.extend_from_slice(body);
        packet.extend_from_slice(format!("#{sum:02x}").as_bytes());
        self.write(&packet);
    }

    /// The next packet's body, still escaped.
    pub fn receive(&mut self) -> Vec<u8> {
        loop {
            match self
                .byte()
                .expect("a packet, but the server is silent or gone")
            {
                b'$' => break,
                b'%' => {
                    let body = self.body();
                    self.notifications
                        .push(String::from_utf8_lossy(&body).into_owned());
                    self.notified.push(body);
                }
                b'+' => {}
                other => panic!("unexpected byte {other:#x}"),
            }
        }
        self.body()
    }

    /// The next notification's body. Panics if a packet precedes it.
    pub fn notification(&mut self) -> String {
        loop {
            match self
                .byte()
                .expect("a notification, but the server is silent or gone")
            {
                b'%' => {
                    let body = self.body();
                    self.notified.push(body.clone());
                    return String::from_utf8_lossy(&body).into_owned();
                }
                b'+' => {}
                other => panic!("unexpected byte {other:#x}"),
            }
        }
    }

    /// Reads the rest of a packet after its first byte.
    fn body(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            match self.byte().unwrap() {
                b'#' => break,
                byte => body.push(byte),
            }
        }
        let stated = [self.byte().unwrap(), self.byte().unwrap()];
        let sum = body.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        assert_eq!(format!("{sum:02x}").as_bytes(), stated);
        body
    }

    /// Sends a packet and returns the answer.
    pub fn ask(&mut self, body: &str) -> String {
        self.send(body.as_bytes());
        self.text()
    }

    /// Makes all signals pass without a stop.
    pub fn pass_all_signals(&mut self) {
        let all: Vec<String> = (1..=0x97).map(|signal| format!("{signal:x}")).collect();
        assert_eq!(self.ask(&format!("QPassSignals:{}", all.join(";"))), "OK");
    }

    /// The next packet, as text.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.receive()).into_owned()
    }

    /// Inserts a breakpoint.
    pub fn plant(&mut self, at: u64) {
        assert_eq!(self.ask(&format!("Z0,{at:x},{}", kind())), "OK");
    }

    /// Removes a breakpoint.
    pub fn lift(&mut self, at: u64) {
        assert_eq!(self.ask(&format!("z0,{at:x},{}", kind())), "OK");
    }

    /// Resumes all threads, and returns the next stop.
    pub fn go(&mut self) -> String {
        self.ask("vCont;c")
    }

    /// True if nothing arrives for this time.
    pub fn silent(&mut self, for_ms: u64) -> bool {
        let short = Some(Duration::from_millis(for_ms));
        self.stream.set_read_timeout(short).unwrap();
        let byte = self.byte();
        self.stream.set_read_timeout(Some(event_timeout())).unwrap();
        if let Some(byte) = byte {
            self.buffer.push(byte);
        }
        byte.is_none()
    }

    /// Reads a whole object, without escapes.
    pub fn transfer(&mut self, object: &str, annex: &str) -> String {
        let mut whole = Vec::new();
        loop {
            let request = format!("qXfer:{object}:read:{annex}:{:x},1000", whole.len());
            self.send(request.as_bytes());
            let reply = self.receive();
            whole.extend(unescape(&reply[1..]));
            match reply[0] {
                b'l' => return String::from_utf8(whole).unwrap(),
                b'm' => {}
                other => panic!("{object}: {other:#x}"),
            }
        }
    }

    /// The ids of all threads.
    pub fn threads(&mut self) -> Vec<u32> {
        let reply = self.ask("qfThreadInfo");
        assert_eq!(self.ask("qsThreadInfo"), "l");
        let list = reply.strip_prefix('m').expect(&reply);
        list.split(',').map(|id| tid(id).1).collect()
    }

    /// The value of a 64-bit register.
    pub fn register(&mut self, number: u32) -> u64 {
        let reply = self.ask(&format!("p{number:x}"));
        little_endian(&reply)
    }

    /// Sets a register of pointer size.
    pub fn set_register(&mut self, number: u32, value: u64) {
        let bytes = &value.to_le_bytes()[..POINTER];
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(self.ask(&format!("P{number:x}={digits}")), "OK");
    }
}

/// Parses `pPID.TID`.
pub fn tid(id: &str) -> (u32, u32) {
    let (pid, tid) = id.strip_prefix('p').unwrap().split_once('.').unwrap();
    let number = |digits| u32::from_str_radix(digits, 16).unwrap();
    (number(pid), number(tid))
}

/// A field of a stop reply.
pub fn field<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    reply[3..].split(';').find_map(|field| {
        let (key, value) = field.split_once(':')?;
        (key == name).then_some(value)
    })
}

/// The stopped thread, as (pid, tid).
pub fn stopped(reply: &str) -> (u32, u32) {
    tid(field(reply, "thread").unwrap_or_else(|| panic!("no thread in {reply}")))
}

pub fn little_endian(digits: &str) -> u64 {
    let bytes = unhex(digits);
    bytes
        .iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u64::from(*byte))
}

pub fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect(digits))
        .collect()
}

pub fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        plain.push(match byte {
            b'}' => rest.next().unwrap() ^ 0x20,
            other => *other,
        });
    }
    plain
}
