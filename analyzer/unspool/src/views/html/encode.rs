//! Encodes columns of numbers as bytes, and bytes as text.
//!
//! The decoding functions are in `page/data.js`.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// A column of numbers in LEB128: seven bits per byte, the low ones first, the high bit set on all
/// bytes except the last.
#[derive(Debug, Default)]
pub(super) struct Column(Vec<u8>);

impl Column {
    pub(super) const fn new() -> Column {
        Column(Vec::new())
    }

    /// Appends a number.
    pub(super) fn push(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Appends a number that may be negative, with its sign in the lowest bit (zigzag).
    pub(super) fn push_signed(&mut self, value: i64) {
        self.push(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Appends an index plus one, or 0 for none.
    pub(super) fn push_index(&mut self, index: Option<usize>) {
        self.push(index.map_or(0, |index| index as u64 + 1));
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Compresses bytes for DecompressionStream's `deflate-raw` (RFC 1951).
pub(super) fn deflate(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_seven_bits_a_byte() {
        let mut column = Column::default();
        column.push(0);
        column.push(127);
        column.push(300);
        column.push_signed(-1);
        column.push_signed(1);
        column.push_index(None);
        column.push_index(Some(6));
        assert_eq!(column.into_bytes(), [0, 127, 0xac, 0x02, 1, 2, 0, 7]);
        let mut longest = Column::default();
        longest.push(u64::MAX);
        assert_eq!(longest.into_bytes().len(), 10);
    }
}
