//! The kernel's set of general registers (`struct pt_regs`) as an array of words: r0 to r15, and
//! the registers below.

pub(super) const PC: usize = 15;
/// The processor's state: flags, instruction set.
pub(super) const STATE: usize = 16;
/// The value of r0 at the start of a system call.
pub(super) const ORIG_R0: usize = 17;
/// Number of words of the set.
pub(super) const COUNT: usize = 18;

/// A word of the set; 0 outside of it.
pub(super) fn word(set: &[u8], index: usize) -> u32 {
    let bytes = set.get(4 * index..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn set_word(set: &mut [u8], index: usize, value: u32) {
    if let Some(bytes) = set.get_mut(4 * index..4 * index + 4) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}
