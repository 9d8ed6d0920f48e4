//! Maps addresses to rule numbers: one block of a few bytes for each few hundred bytes of text.
//!
//! ```text
//! index    4 bytes for each piece: offset of the first change in its block | width of its numbers
//! block    numbers     rule after the last change, after the one before it, ... and at the piece's
//!                      start; 1, 2 or 4 bytes each
//!          changes     offsets where the rule changes, less one; in order, a byte each
//!          255
//! ```
//!
//! The parts of a block lie together, usually in one cache line, and take half the space of a word
//! for each change. The position of a number does not depend on their count, so nothing has to be
//! read before it. Frequent rules have small numbers, so that most numbers take one byte. Pieces
//! without a change share one block for each rule.
//!
//! Separate from [`super::Rows`], which knows what a rule number means.

use alloc::vec::Vec;
use core::hint::select_unpredictable;

use super::file::{Damage, array, number, words};

/// Rule number of addresses without a rule.
pub(super) const GAP: u32 = 0;
/// Number of changes compared at once. This many bytes follow the last block, so that a window
/// never reaches past the end.
const WINDOW: usize = 16;
/// Bits of an index entry for the width of its block's numbers, as a power of two.
const WIDTH_BITS: u32 = 2;
/// Follows a block's last change.
const END: u8 = 0xff;
/// Largest offset of a block. Real images stay below it; anything beyond is dropped.
#[cfg(feature = "std")]
const MAX_BLOCK_OFFSET: usize = (1 << (32 - WIDTH_BITS)) - 4096;
/// Range of piece sizes, as a power of two. An offset in a piece must fit one byte.
const SHIFTS: core::ops::RangeInclusive<u32> = 4..=8;

/// The rule numbers of a range of text.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Bytes of text that a piece covers, as a power of two.
    shift: u32,
    /// The bits of an address that give its offset in a piece.
    mask: u8,
    index: Vec<u32>,
    /// The blocks, followed by [`WINDOW`] spare bytes.
    blocks: Vec<u8>,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    piece: usize,
    block: Block,
    /// Number of the block's changes at or below the address.
    below: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Offset of its first change.
    at: usize,
    /// The width of its numbers as a power of two. It has at most `WIDTH_BITS` bits.
    width: u32,
}

impl Blocks {
    pub(super) fn empty() -> Blocks {
        Blocks {
            shift: *SHIFTS.end(),
            mask: mask(*SHIFTS.end()),
            index: Vec::new(),
            blocks: alloc::vec![0; WINDOW],
        }
    }

    /// Looks up `relative`, an address relative to the first one.
    #[inline(always)]
    pub(super) fn find(&self, relative: u64) -> Option<Spot> {
        let piece = usize::try_from(relative >> self.shift).ok()?;
        let block = self.block(piece)?;
        let place = self.place(relative);
        let window = self.blocks.get(block.at..block.at + WINDOW)?;
        let window = window.first_chunk()?;
        let mut below = at_or_below(window, place);
        if below == WINDOW {
            below += self.beyond(block, place)?;
        }
        Some(Spot {
            piece,
            block,
            below,
        })
    }

    /// Counts the changes after the window that are at or below `place`.
    #[cold]
    fn beyond(&self, block: Block, place: u8) -> Option<usize> {
        let rest = self.changes(block)?.get(WINDOW..)?;
        Some(rest.iter().filter(|change| **change < place).count())
    }

    /// The number of the rule.
    #[inline(always)]
    pub(super) fn rule(&self, spot: Spot) -> Option<u32> {
        self.number(spot.block, spot.below)
    }

    /// Whether the rule may end directly after `relative`, the address that `spot` was found for.
    #[inline(always)]
    pub(super) fn may_end(&self, spot: Spot, relative: u64) -> bool {
        let next = self.blocks.get(spot.block.at + spot.below);
        // The end marker equals the last offset of a large piece, so this can be wrong there.
        next == Some(&self.place(relative)) || self.place(relative.wrapping_add(1)) == 0
    }

    /// The start and the end of the rule's range, relative to the first address.
    pub(super) fn extent(&self, spot: Spot) -> Option<(u64, u64)> {
        let rule = self.rule(spot)?;
        let changes = self.changes(spot.block)?;
        let start_of = |piece: usize| (piece as u64) << self.shift;
        let at = |piece: usize, change: u8| start_of(piece) + u64::from(change) + 1;
        let start = match spot.below.checked_sub(1) {
            Some(last) => at(spot.piece, *changes.get(last)?),
            None => {
                let mut first = start_of(spot.piece);
                for piece in (0..spot.piece).rev() {
                    let block = self.block(piece)?;
                    let changes = self.changes(block)?;
                    if self.number(block, changes.len())? != rule {
                        break;
                    }
                    if let Some(&last) = changes.last() {
                        first = at(piece, last);
                        break;
                    }
                    first = start_of(piece);
                }
                first
            }
        };
        if let Some(&next) = changes.get(spot.below) {
            return Some((start, at(spot.piece, next)));
        }
        let mut piece = spot.piece + 1;
        while let Some(block) = self.block(piece) {
            if self.number(block, 0)? != rule {
                break;
            }
            if let Some(&first) = self.changes(block)?.first() {
                return Some((start, at(piece, first)));
            }
            piece += 1;
        }
        Some((start, start_of(piece)))
    }

    /// Each address where another rule starts, in order, and the number of that rule.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let mut before = GAP;
        let pieces = (0..self.index.len()).filter_map(|piece| Some((piece, self.block(piece)?)));
        pieces
            .flat_map(move |(piece, block)| {
                let start = (piece as u64) << self.shift;
                let changes = self.changes(block).unwrap_or(&[]).iter();
                let changes = changes.map(|change| u64::from(*change) + 1);
                let places = core::iter::once(0).chain(changes);
                let numbers = (0..).map_while(move |at| self.number(block, at));
                let place = move |(place, rule)| (start + place, rule);
                places.zip(numbers).map(place)
            })
            .filter(move |&(_, rule)| core::mem::replace(&mut before, rule) != rule)
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        4 * self.index.len() + self.blocks.len()
    }

    /// The offset of an address in its piece.
    #[inline]
    fn place(&self, relative: u64) -> u8 {
        relative as u8 & self.mask
    }

    #[inline(always)]
    fn block(&self, piece: usize) -> Option<Block> {
        let word = *self.index.get(piece)?;
        Some(Block {
            at: (word >> WIDTH_BITS) as usize,
            width: word & ((1 << WIDTH_BITS) - 1),
        })
    }

    fn changes(&self, block: Block) -> Option<&[u8]> {
        let all = self.blocks.get(block.at..)?;
        // A piece has at most this many offsets.
        let all = &all[..all.len().min(1 << u8::BITS)];
        let count = all.iter().position(|change| *change == END);
        all.get(..count?)
    }

    /// One of the block's numbers.
    #[inline(always)]
    fn number(&self, block: Block, number: usize) -> Option<u32> {
        let at = block.at.wrapping_sub((number + 1) << block.width);
        let word = u32::from_le_bytes(*self.blocks.get(at..at.wrapping_add(4))?.first_chunk()?);
        const MASKS: [u32; 1 << WIDTH_BITS] = [0xff, 0xffff, u32::MAX, 0];
        Some(word & MASKS[block.width as usize])
    }
}

fn mask(shift: u32) -> u8 {
    0xff >> (SHIFTS.end() - shift)
}

/// Counts the changes at or below `place` among the first few.
#[inline(always)]
fn at_or_below(window: &[u8; WINDOW], place: u8) -> usize {
    // Compares all bytes of a word at once, without a branch. A branch on a value that was just
    // loaded would often be mispredicted. Bytes after the end marker do not matter.
    let words = u128::from_le_bytes(*window);
    let low = first_above(words as u64, place);
    let high = first_above((words >> 64) as u64, place);
    let both = select_unpredictable(low == u64::BITS, low + high, low);
    (both / u8::BITS) as usize
}

/// The bit position of the lowest byte of `word` that is at least `place`; 64 if there is none.
#[inline(always)]
fn first_above(word: u64, place: u8) -> u32 {
    const HIGHEST: u64 = 0x8080_8080_8080_8080;
    let place = u64::from(place) * 0x0101_0101_0101_0101;
    // A subtraction compares the lower seven bits of each byte, and no byte borrows from the next.
    // The highest bit decides where it differs.
    let lower = (word | HIGHEST) - (place & !HIGHEST);
    let above = (word & !place | !(word ^ place) & lower) & HIGHEST;
    above.trailing_zeros() & !7
}

/// Converts blocks to and from bytes.
impl Blocks {
    #[cfg(any(feature = "cache", test))]
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(u64::from(self.shift).to_le_bytes());
        super::file::put_words(out, &self.index);
        out.extend((self.blocks.len() as u64).to_le_bytes());
        out.extend(&self.blocks);
    }

    pub(super) fn read(bytes: &mut &[u8]) -> Result<Blocks, Damage> {
        let shift = u32::try_from(number(bytes)?).map_err(|_| Damage)?;
        if !SHIFTS.contains(&shift) {
            return Err(Damage);
        }
        let blocks = Blocks {
            shift,
            mask: mask(shift),
            index: words(bytes)?,
            blocks: array(bytes, 1)?.to_vec(),
        };
        Ok(blocks)
    }
}

/// Builds blocks from changes in order of address.
#[cfg(feature = "std")]
pub(super) struct Filler {
    blocks: Blocks,
    /// The piece being filled: the offsets of its changes, and the numbers of its rules.
    changes: Vec<u8>,
    numbers: Vec<u32>,
    /// By rule: the index entry of pieces without changes; 0 if there is none yet.
    plain: Vec<u32>,
}

#[cfg(feature = "std")]
impl Filler {
    /// A filler for this many changes, from address zero to `last`, and this many rules.
    pub(super) fn new(changes: usize, last: u32, rules: usize) -> Filler {
        /// Upper limit of the average number of changes in a piece.
        const MAX_MEAN_CHANGES: u64 = 8;
        let wanted = (u64::from(last) + 1) * MAX_MEAN_CHANGES / (changes as u64).max(1);
        let shift = wanted.max(1).ilog2().clamp(*SHIFTS.start(), *SHIFTS.end());
        let pieces = (last >> shift) as usize + 1;
        let room = 2 * changes + changes / 8 + 2 * pieces;
        Filler {
            blocks: Blocks {
                shift,
                mask: mask(shift),
                index: Vec::with_capacity(pieces),
                blocks: Vec::with_capacity(room),
            },
            changes: Vec::with_capacity(1 << shift),
            numbers: alloc::vec![GAP],
            plain: alloc::vec![0; rules],
        }
    }

    /// Sets the rule that holds from `address` on.
    #[inline]
    pub(super) fn put(&mut self, address: u32, rule: u32) {
        let piece = (address >> self.blocks.shift) as usize;
        while self.blocks.index.len() < piece {
            self.close();
        }
        let rule = if self.blocks.blocks.len() < MAX_BLOCK_OFFSET {
            rule
        } else {
            GAP
        };
        match self.blocks.place(address.into()) {
            0 => self.numbers[0] = rule,
            _ if self.numbers.last() == Some(&rule) => {}
            place => {
                self.changes.push(place - 1);
                self.numbers.push(rule);
            }
        }
    }

    /// Writes the block of the current piece.
    fn close(&mut self) {
        let Blocks { index, blocks, .. } = &mut self.blocks;
        let last = *self.numbers.last().unwrap_or(&GAP);
        if self.changes.is_empty()
            && let Some(&plain) = self.plain.get(last as usize)
            && plain != 0
        {
            index.push(plain);
            return;
        }
        let numbers = self.numbers.iter().rev();
        let width = match numbers.clone().fold(0, |all, number| all | number) {
            0..=0xff => {
                blocks.extend(numbers.map(|&number| number as u8));
                0
            }
            0x100..=0xffff => {
                blocks.extend(numbers.flat_map(|&number| (number as u16).to_le_bytes()));
                1
            }
            _ => {
                blocks.extend(numbers.flat_map(|number| number.to_le_bytes()));
                2
            }
        };
        let entry = (blocks.len() as u32) << WIDTH_BITS | width;
        index.push(entry);
        if self.changes.is_empty()
            && let Some(plain) = self.plain.get_mut(last as usize)
        {
            *plain = entry;
        }
        blocks.extend_from_slice(&self.changes);
        blocks.push(END);
        self.changes.clear();
        self.numbers.clear();
        self.numbers.push(last);
    }

    /// Finishes after the last change.
    pub(super) fn finish(mut self) -> Blocks {
        self.close();
        let blocks = &mut self.blocks.blocks;
        blocks.resize(blocks.len() + WINDOW, 0);
        self.blocks
    }
}
