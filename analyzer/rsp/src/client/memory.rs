//! Reads and writes the target's memory, and inserts breakpoints.

use crate::breakpoint::Breakpoint;
use crate::client::Client;
use crate::error::Error;
use crate::packet;
use crate::reply::Reply;

/// Page size. Readable memory ends at a multiple of it on every known system.
const PAGE: u64 = 4096;
/// Number of requests sent before the first reply is read.
const WINDOW: usize = 32;
/// Maximum length of a packet's name, address and length fields.
const HEADER: usize = 48;

/// A range of memory that one packet can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) len: usize,
}

impl Piece {
    fn crosses_pages(self) -> bool {
        (self.address % PAGE) + self.len as u64 > PAGE
    }
}

impl Client {
    /// Reads memory (`x` if offered, else `m`) in as many packets as needed. Returns fewer bytes if
    /// memory ends before `len`, and [`Error::Memory`] if the first byte is unreadable.
    pub fn read_memory(&mut self, address: u64, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let pieces = self.pieces(address, len);
        for window in pieces.chunks(WINDOW) {
            let packets: Vec<_> = window.iter().map(|p| self.read_packet(*p)).collect();
            let replies = self.requests(&packets)?;
            for (piece, reply) in window.iter().zip(&replies) {
                let whole = self.read_rest(*piece, reply, &mut bytes)?;
                if !whole {
                    return some(bytes, address);
                }
            }
        }
        some(bytes, address).or_else(|error| if len == 0 { Ok(Vec::new()) } else { Err(error) })
    }

    /// Writes memory (`X`, else `M`).
    pub fn write_memory(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        // Escapes double a byte at worst; hexadecimal digits always do.
        let size = (self.features.packet_size().saturating_sub(HEADER) / 2).max(1);
        let mut at = address;
        for chunk in bytes.chunks(size) {
            let len = chunk.len();
            let mut result = Err(Error::Unsupported { packet: "X".into() });
            if !self.lacking.contains("X") {
                let mut packet = format!("X{at:x},{len:x}:").into_bytes();
                packet.extend(packet::escape(chunk));
                result = self.request(packet)?.ok();
            }
            if result.as_ref().is_err_and(Error::is_unsupported) {
                self.lacking.insert("X");
                let digits = crate::hex::encode(chunk);
                result = self.request(format!("M{at:x},{len:x}:{digits}"))?.ok();
            }
            match result {
                Err(Error::Remote { .. }) => return Err(Error::Memory { address: at }),
                result => result?,
            }
            at = at.wrapping_add(len as u64);
        }
        Ok(())
    }

    /// Inserts a breakpoint or watchpoint (`Z0` to `Z4`).
    pub fn insert_breakpoint(&mut self, breakpoint: Breakpoint) -> Result<(), Error> {
        self.request(format!("Z{breakpoint}"))?.ok()
    }

    /// Removes a breakpoint or watchpoint (`z0` to `z4`).
    pub fn remove_breakpoint(&mut self, breakpoint: Breakpoint) -> Result<(), Error> {
        self.request(format!("z{breakpoint}"))?.ok()
    }

    /// Splits a read into pieces that fit one reply each. They stop at the end of the address
    /// space.
    pub(super) fn pieces(&self, address: u64, len: usize) -> Vec<Piece> {
        let size = match self.has_binary_read() {
            true => self.features.packet_size() - 1,
            false => self.features.packet_size() / 2,
        };
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        let len = len.min((u64::MAX - address).saturating_add(1));
        (0..len)
            .step_by(size)
            .map(|offset| Piece {
                address: address + offset,
                len: (len - offset).min(size as u64) as usize,
            })
            .collect()
    }

    pub(super) fn read_packet(&self, piece: Piece) -> Vec<u8> {
        let letter = if self.has_binary_read() { 'x' } else { 'm' };
        format!("{letter}{:x},{:x}", piece.address, piece.len).into_bytes()
    }

    /// The data in a reply to [`Client::read_packet`], never more than requested.
    pub(super) fn read_reply(&self, piece: Piece, reply: &Reply) -> Result<Vec<u8>, Error> {
        let mut bytes = match self.has_binary_read() {
            true => match reply.binary("`b` and escaped data")? {
                (b'b', data) => data,
                _ => return Err(reply.malformed("`b` and escaped data")),
            },
            false => reply.hex()?,
        };
        bytes.truncate(piece.len);
        Ok(bytes)
    }

    /// Appends a piece's bytes, and requests again what its reply left out. `false` if memory ends
    /// inside the piece.
    fn read_rest(
        &mut self,
        piece: Piece,
        reply: &Reply,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let mut done = match self.read_reply(piece, reply) {
            Ok(data) => append(bytes, &data),
            // Some servers refuse a read that crosses the end of memory, although its first part is
            // readable.
            Err(Error::Remote { .. }) if piece.crosses_pages() => 0,
            Err(Error::Remote { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        while done < piece.len {
            let address = piece.address + done as u64;
            let page_end = (address | (PAGE - 1)).saturating_add(1);
            let rest = Piece {
                address,
                len: (piece.len - done).min((page_end - address) as usize),
            };
            let reply = self.request(self.read_packet(rest))?;
            match self.read_reply(rest, &reply) {
                Ok(data) if !data.is_empty() => done += append(bytes, &data),
                Ok(_) | Err(Error::Remote { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Whether `x` works: with `binary-upload`, its reply is `b` and data (RSP, "Packets", `x`).
    /// Other servers give `x` another meaning.
    fn has_binary_read(&self) -> bool {
        self.features.has("binary-upload")
    }
}

/// The bytes that were read; an error if there are none.
pub(super) fn some(bytes: Vec<u8>, address: u64) -> Result<Vec<u8>, Error> {
    match bytes.is_empty() {
        true => Err(Error::Memory { address }),
        false => Ok(bytes),
    }
}

fn append(bytes: &mut Vec<u8>, data: &[u8]) -> usize {
    bytes.extend_from_slice(data);
    data.len()
}
