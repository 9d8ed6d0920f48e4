//! Files in `/proc`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most of these files are shorter, in bytes.
const USUAL: usize = 16 << 10;

/// Reads a file whose size the kernel does not say. Empty if it cannot be read.
///
/// `std::fs::read` begins with reads of 32 bytes, and the kernel formats a part of the file for
/// each of them. `File::read_to_end` asks for the size first.
pub(crate) fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL);
    if let Ok(file) = File::open(path) {
        let _ = file.take(u64::MAX).read_to_end(&mut bytes);
    }
    bytes
}
