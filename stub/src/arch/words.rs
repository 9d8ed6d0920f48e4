//! Access to the kernel's set of general registers as an array of 64-bit words.

/// A word of the set; 0 outside of it.
#[inline]
pub(super) fn word(set: &[u8], index: usize) -> u64 {
    let bytes = set.get(8 * index..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline]
pub(super) fn set_word(set: &mut [u8], index: usize, value: u64) {
    if let Some(bytes) = set.get_mut(8 * index..8 * index + 8) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}
