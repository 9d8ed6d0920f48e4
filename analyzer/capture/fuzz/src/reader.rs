//! Fuzzes the reader with any bytes: as a capture, and as the content of a block.
//!
//! The block gets a correct header and checksum, plain and compressed, so that fuzzing reaches the
//! records.

use unspool_capture::{Capture, MAGIC, MAJOR_VERSION, MINOR_VERSION};

fn read(bytes: &[u8]) {
    if let Ok(capture) = Capture::read_from(bytes) {
        let events = capture.events().count();
        assert!(events <= bytes.len() * 4096);
    }
}

fn capture(flags: u32, payload: &[u8], unpacked: usize) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend(MAJOR_VERSION.to_le_bytes());
    file.extend(MINOR_VERSION.to_le_bytes());
    file.extend(crc32c::crc32c(&file).to_le_bytes());
    let mut body = flags.to_le_bytes().to_vec();
    body.extend((payload.len() as u32).to_le_bytes());
    body.extend((unpacked as u32).to_le_bytes());
    body.extend_from_slice(payload);
    file.extend_from_slice(b"UBLK");
    file.extend(crc32c::crc32c(&body).to_le_bytes());
    file.extend(body);
    file
}

/// Runs one input.
pub fn run(bytes: &[u8]) {
    read(bytes);
    read(&capture(0, bytes, bytes.len()));
    read(&capture(1, bytes, 1 << 16));
    if let Ok(compressed) = zstd::bulk::compress(bytes, 1) {
        read(&capture(1, &compressed, bytes.len()));
    }
}
