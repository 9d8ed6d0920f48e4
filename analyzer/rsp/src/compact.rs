//! The binary encoding of `unspool-stub`'s notifications with many records: numbers of variable
//! length, and times as changes (docs/reference/protocol.md).

use crate::hex;
use crate::packet;

/// Splits `NOW;RECORDS`, the body of a notification after its name, into the time on the server's
/// monotonic clock and the unescaped records.
pub(crate) fn body(body: &[u8]) -> Option<(u64, Vec<u8>)> {
    let end = body.iter().position(|byte| *byte == b';')?;
    let (now, escaped) = body.split_at(end);
    let now_ns = hex::number(std::str::from_utf8(now).ok()?)?;
    Some((now_ns, packet::unescape(escaped.get(1..)?)?))
}

/// Records that have not been decoded yet.
pub(crate) struct Compact<'a>(pub(crate) &'a [u8]);

impl<'a> Compact<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a number: seven bits in each byte, the lowest first.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a number as a length in memory.
    pub(crate) fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    /// A signed change, to be added with wrapping: 0, -1, 1, -2, ... are the numbers 0, 1, 2, 3.
    pub(crate) fn change(&mut self) -> Option<u64> {
        let change = self.number()?;
        let change = (change >> 1).cast_signed() ^ -(change & 1).cast_signed();
        Some(change.cast_unsigned())
    }
}
