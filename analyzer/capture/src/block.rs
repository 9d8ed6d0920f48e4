//! The file header and the blocks around records, encoded to bytes and decoded.
//!
//! Separate from reader and writer because both must agree on it, and because it does no I/O: all
//! functions take slices. `docs/reference/capture-format.md`, sections 2 and 3, defines layouts and
//! limits.

use prost::Message;
use zstd::bulk::Decompressor;

use crate::calls::Head;
use crate::reader::{CutReason, ReadError};
use crate::record::{Envelope, Part, PartEnvelope, Record};

/// Major version. This crate cannot read captures of another one.
pub const MAJOR_VERSION: u16 = 1;
/// Minor version. It increases with every new record or field; all minor versions read each other.
pub const MINOR_VERSION: u16 = 28;
/// Maximum size of a block, compressed or not. No larger memory is ever allocated for one.
pub const BLOCK_LIMIT: usize = 16 << 20;

/// The first bytes of every capture, whatever its version.
pub const MAGIC: [u8; 8] = *b"UNSPOOL\n";
pub(crate) const FILE_HEADER: usize = 16;
pub(crate) const BLOCK_HEADER: usize = 20;
const MARKER: [u8; 4] = *b"UBLK";
const FLAG_ZSTD: u32 = 1;
const LEVEL: i32 = 3;

pub(crate) fn file_header() -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&MAJOR_VERSION.to_le_bytes());
    header[10..12].copy_from_slice(&MINOR_VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// Checks the file header as far as it has been read. `Ok(false)` if it is right but incomplete.
pub(crate) fn check_file_header(bytes: &[u8]) -> Result<bool, ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(ReadError::NotACapture);
    }
    let Some(header) = bytes.get(..FILE_HEADER) else {
        return Ok(false);
    };
    if crc32c::crc32c(&header[..12]) != u32_at(header, 12) {
        return Err(ReadError::HeaderDamaged);
    }
    let (major, minor) = (u16_at(header, 8), u16_at(header, 10));
    if major != MAJOR_VERSION {
        return Err(ReadError::Version { major, minor });
    }
    Ok(true)
}

/// Wraps a batch of length-delimited envelopes in a block.
pub(crate) fn encode(batch: &[u8]) -> std::io::Result<Vec<u8>> {
    let compressed = zstd::bulk::compress(batch, LEVEL)?;
    let (flags, payload) = if compressed.len() < batch.len() {
        (FLAG_ZSTD, compressed.as_slice())
    } else {
        (0, batch)
    };
    let mut block = Vec::with_capacity(BLOCK_HEADER + payload.len());
    block.extend_from_slice(&MARKER);
    block.extend_from_slice(&[0; 4]); // the checksum, below
    block.extend_from_slice(&flags.to_le_bytes());
    block.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    block.extend_from_slice(&(batch.len() as u32).to_le_bytes());
    block.extend_from_slice(payload);
    let crc = crc32c::crc32c(&block[8..]);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
    Ok(block)
}

/// A block's header, with sizes within the limits.
pub(crate) struct BlockHeader {
    bytes: [u8; BLOCK_HEADER],
    flags: u32,
    pub(crate) stored: usize,
    pub(crate) unpacked: usize,
}

impl BlockHeader {
    pub(crate) fn parse(bytes: [u8; BLOCK_HEADER]) -> Result<BlockHeader, CutReason> {
        if bytes[..4] != MARKER {
            return Err(CutReason::NoBlock);
        }
        let (stored, unpacked) = (u32_at(&bytes, 12), u32_at(&bytes, 16));
        let limit = BLOCK_LIMIT as u32;
        if stored > limit || unpacked > limit {
            return Err(CutReason::BlockTooLarge {
                size: stored.max(unpacked).into(),
            });
        }
        Ok(BlockHeader {
            flags: u32_at(&bytes, 8),
            bytes,
            stored: stored as usize,
            unpacked: unpacked as usize,
        })
    }

    /// Unpacks the batch of length-delimited envelopes into `batch`.
    pub(crate) fn unpack(
        &self,
        payload: &[u8],
        decompressor: &mut Decompressor<'_>,
        batch: &mut Vec<u8>,
    ) -> Result<(), CutReason> {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&self.bytes[8..]), payload);
        if crc != u32_at(&self.bytes, 4) {
            return Err(CutReason::Checksum);
        }
        batch.clear();
        match self.flags {
            0 => batch.extend_from_slice(payload),
            FLAG_ZSTD => {
                // The output never exceeds the buffer, and the buffer never a declared size.
                batch.reserve_exact(self.unpacked);
                let unpacked = decompressor.decompress_to_buffer(payload, batch);
                unpacked.map_err(|_| CutReason::Compression)?;
            }
            flags => return Err(CutReason::UnknownFlags { flags }),
        }
        if batch.len() != self.unpacked {
            return Err(CutReason::Compression);
        }
        Ok(())
    }
}

/// The next envelope of a batch, not decoded.
pub(crate) fn next_envelope<'a>(batch: &mut &'a [u8]) -> Result<&'a [u8], CutReason> {
    let mut rest = *batch;
    let length = prost::decode_length_delimiter(&mut rest).map_err(|_| CutReason::Record)?;
    let (envelope, rest) = rest.split_at_checked(length).ok_or(CutReason::Record)?;
    *batch = rest;
    Ok(envelope)
}

/// Encodes a record as one of process number `process`, which is not 0.
pub(crate) fn part(process: u32, record: &Envelope) -> impl Message + use<> {
    let envelope = record.encode_to_vec();
    PartEnvelope {
        part: Some(Part { process, envelope }),
    }
}

/// The number of the process and the envelope inside of an envelope, if that has a record of a
/// further process.
pub(crate) fn part_of(envelope: &[u8]) -> Result<Option<(u32, Vec<u8>)>, CutReason> {
    /// Field 30, length-delimited, as a varint.
    const PART: [u8; 2] = [0xf2, 0x01];
    if !envelope.starts_with(&PART) {
        return Ok(None);
    }
    let outer = PartEnvelope::decode(envelope).map_err(|_| CutReason::Record)?;
    Ok(outer.part.map(|part| (part.process, part.envelope)))
}

/// The record in an envelope. `None` if its kind is unknown.
pub(crate) fn record(envelope: &[u8]) -> Result<Option<Record>, CutReason> {
    let envelope = Envelope::decode(envelope).map_err(|_| CutReason::Record)?;
    Ok(envelope.record)
}

/// Decodes the record in an envelope into `place`, and reuses the memory of an event there. Returns
/// false if the record's kind is unknown.
pub(crate) fn record_into(envelope: &[u8], place: &mut Record) -> Result<bool, CutReason> {
    if let (Some(bytes), Record::Event(event)) = (event_bytes(envelope), &mut *place) {
        event.clear();
        event.merge(bytes).map_err(|_| CutReason::Record)?;
        return Ok(true);
    }
    let record = record(envelope)?;
    Ok(record.map(|record| *place = record).is_some())
}

/// Decodes only the main fields of an event, if the envelope contains one and nothing else.
pub(crate) fn event_head(envelope: &[u8]) -> Option<Head> {
    Head::decode(event_bytes(envelope)?).ok()
}

/// The encoded event of an envelope that contains nothing else: field 9, length-delimited.
fn event_bytes(envelope: &[u8]) -> Option<&[u8]> {
    const EVENT: u8 = 9 << 3 | 2;
    let (EVENT, mut rest) = envelope.split_first().map(|(tag, rest)| (*tag, rest))? else {
        return None;
    };
    let length = prost::decode_length_delimiter(&mut rest).ok()?;
    Some(rest).filter(|rest| rest.len() == length)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
