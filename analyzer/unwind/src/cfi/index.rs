//! Looks up FDEs by address with the search table of `.eh_frame_hdr` (LSB 5.0, 10.6.2).
//!
//! Separate from the compiler because it reads single entries. One inspection of a program needs
//! about a hundred of the 76,000 functions that one file may have.

use std::ops::Range;

use unspool_image::Arch;

use super::entry::{self, Cie, Entry, Fde};
use super::instruction::{Factors, Instruction, decode};
use super::{Compiler, Section};
use crate::cursor::Cursor;
use crate::registers::roles;
use crate::rows::{Builder, Rows};
use crate::rule::Source;

/// The range that an FDE describes, and what kind of code it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    /// The addresses that the FDE covers.
    pub(crate) range: Range<u64>,
    /// True if its first rule is the one at a function's entry. Otherwise the FDE describes a part
    /// of a function that only jumps lead to.
    pub(crate) function: bool,
}

/// The search table. Each entry has the addresses of a function and of its FDE, relative to the
/// header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Index<'a> {
    svma: u64,
    table: &'a [[u8; 8]],
}

impl<'a> Index<'a> {
    /// The table of a `.eh_frame_hdr` that is mapped at `svma`. `None` if it is not sorted, or does
    /// not have the form that all linkers write.
    pub(crate) fn new(svma: u64, header: &'a [u8]) -> Option<Index<'a>> {
        Index::known(svma, header).filter(|index| index.starts().is_sorted())
    }

    /// Like [`Index::new`], for a table that is known to be sorted.
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

    /// The start addresses of functions and parts of functions, in order.
    pub(crate) fn starts(&self) -> impl Iterator<Item = u64> {
        self.table.iter().map(|entry| self.start(entry))
    }

    fn start(&self, &[a, b, c, d, ..]: &[u8; 8]) -> u64 {
        self.svma
            .wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())
    }

    /// The addresses of the FDEs that may cover addresses in `range`.
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

/// The rows of the FDE that covers `svma`, and all addresses it covers. `None` if there is none.
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

/// The rows of all FDEs that cover addresses in `range`.
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

/// The ranges and kinds of all FDEs that cover addresses in `range`.
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

/// Whether the rule at the first address is the rule at a function's entry, as the CIE states it.
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

/// The FDEs that may cover addresses in `range`, and the offsets of their CIEs.
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
