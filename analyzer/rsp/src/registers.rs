//! The registers of one thread: the bytes of a `g` reply, and which of them are known.

use crate::description::Register;

/// A thread's registers in the layout of the `g` packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registers {
    bytes: Vec<u8>,
    known: Vec<bool>,
}

impl Registers {
    /// Builds it from stored parts. `known` is truncated, or padded with `false`, to the length of
    /// `bytes`.
    pub fn new(bytes: Vec<u8>, mut known: Vec<bool>) -> Registers {
        known.resize(bytes.len(), false);
        Registers { bytes, known }
    }

    /// No known registers; [`Registers::set`] adds some.
    pub fn unknown() -> Registers {
        Registers::default()
    }

    /// Those of these registers that are in the first bytes of a `g` packet.
    pub fn among(registers: &[Register], first: &[u8]) -> Registers {
        let ends = registers.iter().map(|register| register.range().end);
        let end = ends.filter(|end| *end <= first.len()).max().unwrap_or(0);
        let mut chosen = Registers::new(vec![0; end], Vec::new());
        for register in registers {
            if let Some(bytes) = first.get(register.range()) {
                chosen.set(register, bytes);
            }
        }
        chosen
    }

    /// Decodes a `g` reply: two hexadecimal digits for each byte, or `xx` if it is unavailable
    /// (RSP, "Packets", `g`). `None` if the reply has another form.
    pub fn decode(reply: &[u8]) -> Option<Registers> {
        let (pairs, rest) = reply.as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        let mut registers = Registers::default();
        for pair in pairs {
            let byte = match pair {
                b"xx" => None,
                pair => Some(crate::hex::decode(pair)?.first().copied()?),
            };
            registers.bytes.push(byte.unwrap_or(0));
            registers.known.push(byte.is_some());
        }
        Some(registers)
    }

    /// The bytes, in the layout of the `g` packet; 0 where unknown.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether each byte is known.
    pub fn known(&self) -> &[bool] {
        &self.known
    }

    /// The bytes of one register in target byte order, if all are known.
    pub fn get(&self, register: &Register) -> Option<&[u8]> {
        let range = register.range();
        if !self.known.get(range.clone())?.iter().all(|known| *known) {
            return None;
        }
        self.bytes.get(range)
    }

    /// The value of a register of at most 64 bits, read as little-endian (as on all supported
    /// targets).
    pub fn value(&self, register: &Register) -> Option<u64> {
        let bytes = self.get(register)?;
        let mut value = [0; 8];
        value.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }

    /// Sets one register, and extends the data if it is too short. Bytes beyond the register's size
    /// are ignored; missing ones become unknown.
    pub fn set(&mut self, register: &Register, bytes: &[u8]) {
        let range = register.range();
        if self.bytes.len() < range.end {
            self.bytes.resize(range.end, 0);
            self.known.resize(range.end, false);
        }
        let given = bytes.len().min(range.len());
        let (bytes_of, known_of) = (&mut self.bytes[range.clone()], &mut self.known[range]);
        bytes_of[..given].copy_from_slice(&bytes[..given]);
        bytes_of[given..].fill(0);
        known_of[..given].fill(true);
        known_of[given..].fill(false);
    }

    /// The form of a `g` reply or a `G` packet: hexadecimal digits, `xx` where unknown.
    pub fn encode(&self) -> String {
        let mut text = crate::hex::encode(&self.bytes).into_bytes();
        for (pair, known) in text.chunks_mut(2).zip(&self.known) {
            if !known {
                pair.fill(b'x');
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}
