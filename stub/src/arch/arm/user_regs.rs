//! The kernel's set of general registers (`struct pt_regs`), as an array of words: r0 to r15, and
//! these.

pub(super) const PC: usize = 15;
/// The processor's state: flags, instruction set.
pub(super) const STATE: usize = 16;
/// r0 as a system call has found it.
pub(super) const ORIG_R0: usize = 17;
/// Words of the set.
pub(super) const COUNT: usize = 18;

/// A word; 0 where there is none.
pub(super) fn word(set: &[u8], index: usize) -> u32 {
    let bytes = set.get(4 * index..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn set_word(set: &mut [u8], index: usize, value: u32) {
    if let Some(bytes) = set.get_mut(4 * index..4 * index + 4) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}
