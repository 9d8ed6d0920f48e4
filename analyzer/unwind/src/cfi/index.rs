//! Entries by address, without reading the others: `.eh_frame_hdr` has a search table (LSB 5.0, 10.6.2).
//!
//! Apart from the compiler because it answers single questions. A look at a program asks about a hundred of the 76,000
//! functions that one file may have.

use std::ops::Range;

use unspool_image::Arch;

use super::entry::{self, Cie, Entry, Fde};
use super::instruction::{Factors, Instruction, decode};
use super::{Compiler, Section};
use crate::cursor::Cursor;
use crate::registers::roles;
use crate::rows::{Builder, Rows};
use crate::rule::Source;

/// What an entry is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    /// The addresses it speaks of.
    pub(crate) range: Range<u64>,
    /// Its first rule is that of a function's first instruction. Otherwise it describes a part of a function, which only
    /// jumps lead to.
    pub(crate) function: bool,
}

/// The search table: for each entry the function's address and the entry's, relative to the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index<'a> {
    svma: u64,
    table: &'a [[u8; 8]],
}

impl<'a> Index<'a> {
    /// The table of a `.eh_frame_hdr` that is mapped at `svma`, in the form that all linkers write. `None`: it has another form, or
    /// is not sorted.
    pub(crate) fn new(svma: u64, header: &'a [u8]) -> Option<Index<'a>> {
        Index::known(svma, header).filter(|index| index.starts().is_sorted())
    }

    /// The same of a table that was seen to be sorted.
    pub(crate) fn known(svma: u64, header: &'a [u8]) -> Option<Index<'a>> {
        let [1, 0x1b, 0x03, 0x3b, _, _, _, _, a, b, c, d, table @ ..] = header else {
            return None;
        };
        let count = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let (table, _) = table.as_chunks::<8>();
        Some(Index {
            svma,
            table: table.get(..count)?,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Where functions and parts of functions start, in order.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> {
        self.table.iter().map(|entry| self.start(entry))
    }

    fn start(&self, &[a, b, c, d, ..]: &[u8; 8]) -> u64 {
        self.svma
            .wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())
    }

    /// The addresses of the entries that may speak of `range`.
    fn entries(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let first = self
            .table
            .partition_point(|entry| self.start(entry) <= range.start);
        let last = self
            .table
            .partition_point(|entry| self.start(entry) < range.end);
        let entries = self
            .table
            .get(first.saturating_sub(1)..last)
            .unwrap_or(&[])
            .iter();
        entries.map(|&[_, _, _, _, a, b, c, d]| {
            self.svma
                .wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())
        })
    }
}

/// The rows of the entry that speaks of `svma`, and all the addresses that it speaks of. `None`: there is no such entry.
pub(crate) fn compile_one(
    arch: Arch,
    section: &Section<'_>,
    index: &Index<'_>,
    text: &[Range<u64>],
    svma: u64,
) -> Option<(Range<u64>, Rows)> {
    let mut into = Builder::new(Source::Cfi, arch);
    let mut compiler = Compiler::new(arch, section, text, &mut into);
    let mut covered = None;
    for found in entries(section, index, &(svma..svma.checked_add(1)?)) {
        let range = compiler.fde(&found.0, found.1);
        covered = range.filter(|range| range.contains(&svma)).or(covered);
    }
    Some((covered?, into.finish()))
}

/// The rows of all entries that speak of `range`.
pub(crate) fn compile_range(
    arch: Arch,
    section: &Section<'_>,
    index: &Index<'_>,
    text: &[Range<u64>],
    range: &Range<u64>,
) -> Rows {
    let mut into = Builder::new(Source::Cfi, arch);
    let mut compiler = Compiler::new(arch, section, text, &mut into);
    for (found, cie) in entries(section, index, range) {
        compiler.fde(&found, cie);
    }
    into.finish()
}

/// What the entries that speak of `range` are about.
pub(crate) fn described(
    arch: Arch,
    section: &Section<'_>,
    index: &Index<'_>,
    range: &Range<u64>,
) -> Vec<Described> {
    let pointer = roles(arch).pointer;
    let entries = entries(section, index, range).filter_map(|(found, cie)| {
        let cie = entry::cie(section, cie, pointer, 0).ok()?;
        let fde = cie.fde(section, &found)?;
        Some(Described {
            range: fde.start..fde.end,
            function: begins_as_called(arch, &cie, &fde),
        })
    });
    entries
        .filter(|one| one.range.start < range.end && one.range.end > range.start)
        .collect()
}

/// Whether nothing differs from what the CIE says before the first advance.
fn begins_as_called(arch: Arch, cie: &Cie<'_>, fde: &Fde<'_>) -> bool {
    let factors = Factors {
        code: cie.code_factor,
        data: cie.data_factor,
        encoding: cie.encoding,
        aarch64: arch == Arch::Aarch64,
    };
    let mut at = Cursor::new(fde.instructions);
    while !at.is_empty() {
        match decode(&mut at, &factors, |_| 0) {
            Ok(Instruction::Nop) => {}
            Ok(Instruction::Advance(_) | Instruction::SetLocation(_)) | Err(_) => return true,
            // A thread's first function has no caller.
            Ok(Instruction::Undefined(register)) if register == cie.ra => return true,
            Ok(_) => return false,
        }
    }
    true
}

/// The entries that may speak of `range`, and where their CIEs are.
fn entries<'s>(
    section: &'s Section<'_>,
    index: &'s Index<'_>,
    range: &Range<u64>,
) -> impl Iterator<Item = (Entry, usize)> + 's {
    let addresses: Vec<u64> = index.entries(range).collect();
    addresses.into_iter().filter_map(|address| {
        let at = usize::try_from(address.wrapping_sub(section.svma)).ok()?;
        let found = entry::entry(section, at).ok().flatten()?;
        Some((found, found.cie?))
    })
}
