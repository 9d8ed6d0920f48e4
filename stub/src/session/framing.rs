//! Packet framing (GDB manual, "Overview" of the remote protocol): `$body#checksum`,
//! acknowledgements until the client turns them off, and the single interrupt byte.
//!
//! No input is fatal: the parser skips garbage between packets, answers a bad checksum with `-`,
//! and drops a packet that is too long.

/// Maximum size of a packet, announced as `PacketSize`.
pub(crate) const PACKET_SIZE: usize = 0x20000;

/// Parsed input from the peer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Incoming {
    /// A packet's body, still escaped.
    Packet(Vec<u8>),
    /// The interrupt byte, 0x03.
    Interrupt,
}

enum State {
    Between,
    Body,
    Checksum,
}

/// Framing of one connection, in both directions.
pub(crate) struct Framing {
    state: State,
    body: Vec<u8>,
    checksum: Vec<u8>,
    acks: bool,
    last: Vec<u8>,
    out: Vec<u8>,
}

impl Framing {
    /// A new connection.
    pub(crate) fn new() -> Framing {
        Framing {
            state: State::Between,
            body: Vec::new(),
            checksum: Vec::new(),
            acks: true,
            last: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Turns off acknowledgements in both directions.
    pub(crate) fn stop_acks(&mut self) {
        self.acks = false;
        self.last = Vec::new();
    }

    /// Takes one byte. Returns a packet or interrupt when it is complete.
    pub(crate) fn take(&mut self, byte: u8) -> Option<Incoming> {
        match (&self.state, byte) {
            (State::Between, b'$') => {
                self.body.clear();
                self.state = State::Body;
            }
            (State::Between, 0x03) => return Some(Incoming::Interrupt),
            (State::Between, b'-') if self.acks => self.out.extend_from_slice(&self.last),
            (State::Between, _) => {}
            (State::Body, b'#') => {
                self.checksum.clear();
                self.state = State::Checksum;
            }
            // An unescaped `$` starts a new packet: the end of the previous one was lost.
            (State::Body, b'$') => self.body.clear(),
            (State::Body, _) if self.body.len() >= PACKET_SIZE => self.state = State::Between,
            (State::Body, byte) => self.body.push(byte),
            (State::Checksum, byte) => {
                self.checksum.push(byte);
                if self.checksum.len() == 2 {
                    self.state = State::Between;
                    return self.complete();
                }
            }
        }
        None
    }

    fn complete(&mut self) -> Option<Incoming> {
        if self.acks {
            let stated = std::str::from_utf8(&self.checksum).ok();
            let stated = stated.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let good = stated == Some(sum(&self.body));
            self.out.push(if good { b'+' } else { b'-' });
            if !good {
                return None;
            }
        }
        Some(Incoming::Packet(std::mem::take(&mut self.body)))
    }

    /// Queues a packet. The body must be escaped where it is binary.
    pub(crate) fn send(&mut self, body: &[u8]) {
        let start = self.out.len();
        self.out.extend_from_slice(&framed(body));
        if self.acks {
            self.last = self.out[start..].to_vec();
        }
    }

    /// Queues a notification. Notifications have no acknowledgement. The body must be escaped where
    /// it is binary.
    pub(crate) fn notify(&mut self, body: &[u8]) {
        self.notify_with(|out| out.extend_from_slice(body));
    }

    /// Queues a notification whose body is `text`, and then `bytes`, which it escapes.
    pub(crate) fn notify_binary(&mut self, text: &[u8], bytes: &[u8]) {
        self.notify_with(|out| {
            out.extend_from_slice(text);
            escape(bytes, out);
        });
    }

    /// Queues a notification with the body that `body` appends, escaped where it is binary.
    pub(crate) fn notify_with(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(b'%');
        let start = self.out.len();
        body(&mut self.out);
        let checksum = format!("#{:02x}", sum(&self.out[start..]));
        self.out.extend_from_slice(checksum.as_bytes());
    }

    /// True if the output buffer is full, so that the stub should take no more requests.
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() >= PACKET_SIZE
    }

    /// Moves the bytes to write to the end of `into`.
    pub(crate) fn take_output(&mut self, into: &mut Vec<u8>) {
        into.append(&mut self.out);
        self.out.shrink_to(PACKET_SIZE);
    }
}

/// Builds a complete packet. The body must be escaped where it is binary.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    let checksum = format!("#{:02x}", sum(body));
    [b"$", body, checksum.as_bytes()].concat()
}

/// Number of bytes that are examined together when escaping.
const CHUNK: usize = 64;

fn sum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Appends `bytes` with the binary escapes of the protocol: `}` and the byte XOR 0x20.
pub(crate) fn escape(bytes: &[u8], into: &mut Vec<u8>) {
    let special = |byte: &u8| matches!(byte, b'#' | b'$' | b'}' | b'*');
    let mut plain = 0;
    // Most output is memory, which contains few special bytes. Examining a whole chunk takes no
    // branches.
    for (number, chunk) in bytes.chunks(CHUNK).enumerate() {
        if !chunk.iter().fold(false, |any, byte| any | special(byte)) {
            continue;
        }
        for (index, byte) in chunk.iter().enumerate().filter(|(_, byte)| special(byte)) {
            let at = number * CHUNK + index;
            into.extend_from_slice(&bytes[plain..at]);
            into.extend_from_slice(&[b'}', byte ^ 0x20]);
            plain = at + 1;
        }
    }
    into.extend_from_slice(&bytes[plain..]);
}

/// The inverse of [`escape`].
pub(crate) fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.as_slice()) {
            (b'}', [escaped, ..]) => {
                plain.push(escaped ^ 0x20);
                bytes.next();
            }
            _ => plain.push(*byte),
        }
    }
    plain
}

/// Decodes hexadecimal digits.
pub(crate) fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| match pair {
            [_, _] => number(pair).map(|byte| byte as u8),
            _ => None,
        })
        .collect()
}

/// Appends `bytes` as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8], into: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        into.push(DIGITS[usize::from(byte >> 4)]);
        into.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Reads a hexadecimal number.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(framing: &mut Framing, bytes: &[u8]) -> Vec<Incoming> {
        bytes.iter().filter_map(|b| framing.take(*b)).collect()
    }

    fn output(framing: &mut Framing) -> Vec<u8> {
        let mut output = Vec::new();
        framing.take_output(&mut output);
        output
    }

    #[test]
    fn good_packets_are_acknowledged() {
        let mut framing = Framing::new();
        let got = feed(&mut framing, b"+$g#67\x03");
        assert_eq!(got, [Incoming::Packet(b"g".to_vec()), Incoming::Interrupt]);
        assert_eq!(output(&mut framing), b"+");
    }

    #[test]
    fn bad_checksums_are_refused_and_replies_repeated() {
        let mut framing = Framing::new();
        assert!(feed(&mut framing, b"$g#00").is_empty());
        assert_eq!(output(&mut framing), b"-");
        framing.send(b"OK");
        output(&mut framing);
        feed(&mut framing, b"-");
        assert_eq!(output(&mut framing), b"$OK#9a");
    }

    #[test]
    fn endless_packets_are_dropped() {
        let mut framing = Framing::new();
        assert!(feed(&mut framing, &[b'$'; 10]).is_empty());
        assert!(feed(&mut framing, &vec![b'a'; 2 * PACKET_SIZE]).is_empty());
        assert_eq!(feed(&mut framing, b"$?#3f").len(), 1);
    }

    #[test]
    fn binary_is_escaped() {
        let mut out = Vec::new();
        escape(b"a#}", &mut out);
        assert_eq!(out, b"a}\x03}]");
        assert_eq!(unescape(&out), b"a#}");
        let all: Vec<u8> = (0..=255).cycle().take(1000).collect();
        out.clear();
        escape(&all, &mut out);
        assert_eq!(
            out.len(),
            1000 + all.iter().filter(|b| b"#$}*".contains(b)).count()
        );
        assert_eq!(unescape(&out), all);
    }

    #[test]
    fn digits_come_in_pairs() {
        assert_eq!(unhex(b"00ff"), Some(vec![0, 255]));
        assert_eq!(unhex(b""), Some(vec![]));
        assert_eq!(unhex(b"0"), None);
        assert_eq!(unhex(b"0x"), None);
    }
}
