//! Rows as bytes: the arrays one after the other, little-endian, each with its length in front.
//!
//! Reading only copies them. Whatever the bytes contain, later lookups stay within the arrays.

use alloc::vec::Vec;

use unspool_image::Arch;

use super::Rows;
use super::blocks::Blocks;
use crate::once::Once;

/// The bytes do not contain rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage;

impl Rows {
    /// Appends these rows to `out`.
    #[cfg(any(feature = "cache", test))]
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.base.to_le_bytes());
        self.blocks.write(out);
        for words in [&self.more, &self.lists, &self.expression_ends] {
            put_words(out, words);
        }
        for words in [&self.quick, &self.wide] {
            out.extend((words.len() as u64).to_le_bytes());
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        out.extend((self.expression_bytes.len() as u64).to_le_bytes());
        out.extend(&self.expression_bytes);
    }

    /// Takes rows from the front of `bytes`.
    pub(crate) fn read(arch: Arch, bytes: &mut &[u8]) -> Result<Rows, Damage> {
        let base = number(bytes)?;
        let rows = Rows {
            arch,
            base,
            blocks: Blocks::read(bytes)?,
            more: words(bytes)?,
            lists: words(bytes)?,
            expression_ends: words(bytes)?,
            quick: long_words(bytes)?,
            wide: long_words(bytes)?,
            expression_bytes: array(bytes, 1)?.to_vec(),
            list_at: Vec::new(),
            pool: Once::new(),
        };
        let sound = !rows.quick.is_empty() && rows.quick.len() == rows.more.len();
        if sound { Ok(rows) } else { Err(Damage) }
    }
}

pub(crate) fn number(bytes: &mut &[u8]) -> Result<u64, Damage> {
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or(Damage)?;
    *bytes = rest;
    Ok(u64::from_le_bytes(*head))
}

/// Takes the bytes of an array with elements of `size` bytes.
pub(crate) fn array<'a>(bytes: &mut &'a [u8], size: usize) -> Result<&'a [u8], Damage> {
    let count = usize::try_from(number(bytes)?).map_err(|_| Damage)?;
    let len = count.checked_mul(size).ok_or(Damage)?;
    let (head, rest) = bytes.split_at_checked(len).ok_or(Damage)?;
    *bytes = rest;
    Ok(head)
}

#[cfg(any(feature = "cache", test))]
pub(super) fn put_words(out: &mut Vec<u8>, words: &[u32]) {
    out.extend((words.len() as u64).to_le_bytes());
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

pub(super) fn words(bytes: &mut &[u8]) -> Result<Vec<u32>, Damage> {
    let (chunks, _) = array(bytes, 4)?.as_chunks::<4>();
    Ok(chunks
        .iter()
        .map(|chunk| u32::from_le_bytes(*chunk))
        .collect())
}

fn long_words(bytes: &mut &[u8]) -> Result<Vec<u64>, Damage> {
    let (chunks, _) = array(bytes, 8)?.as_chunks::<8>();
    Ok(chunks
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk))
        .collect())
}
