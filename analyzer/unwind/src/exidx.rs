//! Compiles the ARM exception index, `.ARM.exidx` and `.ARM.extab`, to rows.
//!
//! References are to "Exception Handling ABI for the Arm Architecture" (EHABI), sections 6 (index
//! table), 7 (handling table) and 10 (bytecode). [`decode`](opcode::decode) reads bytes to typed
//! operations. [`frame_of`] evaluates operations symbolically, which turns an entry into one row.
//! The row is valid only at the call sites of its function, because the ABI promises no more.

pub mod opcode;

use crate::registers::roles;
use crate::rows::{Builder, Draft};
use crate::rule::{Cfa, Place};
use crate::table::Note;
use opcode::Op;
use unspool_image::Arch;

/// The content of an index entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// `EXIDX_CANTUNWIND` (6): nothing is known, or the function must not be unwound.
    CantUnwind,
    /// The unwinding operations.
    Operations(Vec<Op>),
    /// An unknown layout or personality routine.
    Unreadable(&'static str),
}

/// Returns bytes of the image at an address.
pub type BytesAt<'a> = dyn Fn(u64, usize) -> Option<&'a [u8]> + 'a;

/// Reads an index whose `data` starts at `svma`: function starts and entries, in the index's order.
pub fn read<'a>(
    data: &'a [u8],
    svma: u64,
    bytes_at: &'a BytesAt<'a>,
) -> impl Iterator<Item = (u64, Entry)> + 'a {
    data.chunks_exact(8).enumerate().map(move |(index, pair)| {
        let here = svma.wrapping_add(8 * index as u64);
        let function = prel31(word(pair, 0), here);
        let second = word(pair, 4);
        let entry = if second == 1 {
            Entry::CantUnwind
        } else if second >> 31 == 1 {
            compact(second, |_| None)
        } else {
            table_entry(prel31(second, here.wrapping_add(4)), bytes_at)
        };
        (function, entry)
    })
}

/// The function starts of an index, in order.
pub(crate) fn starts(data: &[u8], svma: u64) -> Vec<u64> {
    let mut starts: Vec<u64> = data
        .chunks_exact(8)
        .enumerate()
        .map(|(index, pair)| prel31(word(pair, 0), svma.wrapping_add(8 * index as u64)))
        .collect();
    starts.sort_unstable();
    starts
}

/// Function starts and the addresses of their language-specific data. That data lies after the
/// operations of generic-model entries with a personality routine that [`read`] understands.
pub(crate) fn language_data<'a>(
    data: &'a [u8],
    svma: u64,
    bytes_at: &'a BytesAt<'a>,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    data.chunks_exact(8)
        .enumerate()
        .filter_map(move |(index, pair)| {
            let here = svma.wrapping_add(8 * index as u64);
            let second = word(pair, 4);
            if second == 1 || second >> 31 == 1 {
                return None;
            }
            let entry = prel31(second, here.wrapping_add(4));
            let head = bytes_at(entry, 8)?;
            let generic = word(head, 0) >> 31 == 0;
            let words = u64::from(word(head, 4) >> 24);
            generic.then_some((prel31(word(pair, 0), here), entry + 8 + 4 * words))
        })
}

/// EHABI 7: the handling table entry at `at`.
fn table_entry<'a>(at: u64, bytes_at: &BytesAt<'a>) -> Entry {
    let word_at = |index: u64| {
        bytes_at(at.wrapping_add(4 * index) & 0xffff_ffff, 4).map(|bytes| word(bytes, 0))
    };
    let Some(first) = word_at(0) else {
        return Entry::Unreadable("table entry outside the image");
    };
    if first >> 31 == 1 {
        return compact(first, |index| word_at(1 + index));
    }
    // Generic model: the personality routine's address, then data that only it understands. GNU
    // personality routines such as `__gxx_personality_v0` use the layout of personality routine 1:
    // a count of further words in the top byte, then three operations.
    let Some(second) = word_at(1) else {
        return Entry::Unreadable("table entry outside the image");
    };
    operations(
        &second.to_be_bytes()[1..],
        u64::from(second >> 24),
        |index| word_at(2 + index),
    )
}

/// EHABI 7.3, 10.2: `1000iiii` selects personality routine i of 0..=2; its operations follow.
fn compact(first: u32, more: impl Fn(u64) -> Option<u32>) -> Entry {
    let bytes = first.to_be_bytes();
    match bytes[0] {
        // Su16: three operations, no more words.
        0x80 => operations(&bytes[1..], 0, more),
        // Lu16, Lu32: a count of further words, two operations.
        0x81 | 0x82 => operations(&bytes[2..], u64::from(bytes[1]), more),
        _ => Entry::Unreadable("unknown personality routine"),
    }
}

fn operations(head: &[u8], words: u64, more: impl Fn(u64) -> Option<u32>) -> Entry {
    let mut bytes = head.to_vec();
    for index in 0..words {
        match more(index) {
            Some(word) => bytes.extend(word.to_be_bytes()),
            None => return Entry::Unreadable("operations outside the image"),
        }
    }
    Entry::Operations(opcode::decode(&bytes))
}

/// The result of evaluating a list of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameOf {
    /// The caller's stack pointer.
    pub cfa: Cfa,
    /// The return address.
    pub ra: Place,
    /// Saved core registers.
    pub saved: Vec<(u8, Place)>,
}

/// Evaluates operations symbolically. `None` if they refuse, or depend on memory: they pop `vsp`,
/// or take it from a register that was popped.
pub fn frame_of(operations: &[Op]) -> Option<FrameOf> {
    const SP: u8 = 13;
    const LR: u8 = 14;
    const PC: u8 = 15;
    // vsp = base + offset
    let (mut base, mut offset) = (SP, 0i32);
    let mut popped: Vec<(u8, u8, i32)> = Vec::new();
    for &operation in operations {
        match operation {
            Op::AddSp(bytes) => offset = offset.checked_add(bytes)?,
            Op::Pop(mask) => {
                for register in (0..16u8).filter(|register| mask >> register & 1 == 1) {
                    if register == SP {
                        return None;
                    }
                    popped.retain(|&(old, ..)| old != register);
                    popped.push((register, base, offset));
                    offset = offset.checked_add(4)?;
                }
            }
            Op::SpFrom(register) => {
                if popped.iter().any(|&(old, ..)| old == register) {
                    return None;
                }
                (base, offset) = (register, 0);
            }
            Op::Skip(bytes) => offset = offset.checked_add(i32::try_from(bytes).ok()?)?,
            Op::Finish => break,
            Op::Refuse | Op::Spare(_) => return None,
        }
    }
    let place = |from: u8, at: i32| {
        if from == base {
            Some(Place::AtCfa(at.checked_sub(offset)?))
        } else {
            Some(Place::AtRegister {
                register: from,
                offset: at,
            })
        }
    };
    let (mut lr, mut pc) = (None, None);
    let mut saved = Vec::new();
    for (register, from, at) in popped {
        let place = place(from, at)?;
        match register {
            LR => lr = Some(place),
            PC => pc = Some(place),
            _ => saved.push((register, place)),
        }
    }
    saved.sort_by_key(|(register, _)| *register);
    Some(FrameOf {
        cfa: Cfa::Register {
            register: base,
            offset,
        },
        // 10.3 "finish": if pc was not popped, it is copied from lr.
        ra: pc.or(lr).unwrap_or(Place::Same),
        saved,
    })
}

/// Compiles an index; `text_end` bounds the last entry.
pub(crate) fn compile<'a>(
    data: &'a [u8],
    svma: u64,
    bytes_at: &'a BytesAt<'a>,
    text_end: u64,
    into: &mut Builder,
    notes: &mut Vec<Note>,
) {
    debug_assert_eq!(roles(Arch::Arm).sp, 13);
    let mut entries: Vec<_> = read(data, svma, bytes_at).collect();
    // EHABI 6: the linker sorts the index. An unsorted index is damaged, but each entry may be
    // right.
    if !entries.is_sorted_by_key(|(start, _)| *start) {
        notes.push(Note::new(".ARM.exidx is not in order of address".into()));
        entries.sort_by_key(|(start, _)| *start);
    }
    let mut unreadable = 0usize;
    for (index, (start, entry)) in entries.iter().enumerate() {
        let end = entries.get(index + 1).map_or(text_end, |next| next.0);
        match entry {
            Entry::CantUnwind => {}
            Entry::Unreadable(_) => unreadable += 1,
            Entry::Operations(operations) => match frame_of(operations) {
                Some(frame) => into.push(
                    *start,
                    end,
                    &Draft {
                        cfa: frame.cfa,
                        ra: frame.ra,
                        saved: &frame.saved,
                        signal_frame: false,
                        signed: false,
                    },
                ),
                None => unreadable += 1,
            },
        }
    }
    if unreadable > 0 {
        notes.push(Note::new(format!(
            "{unreadable} of {} entries of .ARM.exidx are unreadable or refuse to unwind",
            entries.len()
        )));
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// EHABI 5: a 31-bit place-relative offset.
fn prel31(word: u32, at: u64) -> u64 {
    let offset = (word << 1) as i32 >> 1;
    at.wrapping_add_signed(i64::from(offset)) & 0xffff_ffff
}

#[cfg(test)]
mod tests;
