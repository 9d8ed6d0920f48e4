//! The function before an address, by the symbol table in its own order.
//!
//! Separate from [`crate::Symbols`], which merges all tables and prefers the symbol that contains
//! an address. binutils takes the nearest symbol before the address, in one table.

use std::collections::HashMap;

use super::is_mapping_symbol;
use crate::image::{SharedBytes, layout, tables};
use crate::symbols::read;
use crate::{Arch, Image};

const STB_LOCAL: u8 = 0;
const STB_GLOBAL: u8 = 1;
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_SECTION: u8 = 3;
const STT_FILE: u8 = 4;
const STT_COMMON: u8 = 5;
const STT_TLS: u8 = 6;
const STT_RELC: u8 = 8;
const STT_SRELC: u8 = 9;
const STT_GNU_IFUNC: u8 = 10;
const STT_ARM_TFUNC: u8 = 13;
const STV_HIDDEN: u8 = 2;

/// The symbols of a file and their names: `.symtab`, or `.dynsym` if that is empty.
#[derive(Default)]
pub(super) struct Tables {
    symbols: SharedBytes,
    names: SharedBytes,
    is_64: bool,
    endian: Option<object::Endianness>,
}

impl Tables {
    pub(super) fn read(image: &Image) -> Tables {
        let layout = image.layout();
        let size = if layout.is_64 { 24 } else { 16 };
        let used = |(symbols, _): &(SharedBytes, SharedBytes)| symbols.bytes().len() > size;
        let own = read::sections(image, ".symtab").filter(used);
        let tables = own.or_else(|| read::sections(image, ".dynsym"));
        let (symbols, names) = tables.unwrap_or_default();
        Tables {
            symbols,
            names,
            is_64: layout.is_64,
            endian: Some(layout.endian),
        }
    }

    fn iter(&self) -> impl Iterator<Item = tables::RawSymbol> + '_ {
        let endian = self.endian.unwrap_or_default();
        tables::symbols(self.symbols.bytes(), self.is_64, endian)
    }

    fn name(&self, offset: u32) -> &[u8] {
        layout::string_at(self.names.bytes(), offset.into()).unwrap_or(b"")
    }
}

/// The symbols that can be functions, by section and offset.
#[derive(Default)]
pub(super) struct SymbolTable<'a> {
    sections: HashMap<u16, Vec<Candidate<'a>>>,
    /// Data symbols by section and address: index in the table, name, whether it is global.
    data: HashMap<(u16, u64), &'a [u8]>,
}

/// A symbol that can be a function.
struct Candidate<'a> {
    offset: u64,
    size: u64,
    name: &'a [u8],
    /// The source file by the last `STT_FILE` symbol before this one.
    file: Option<&'a [u8]>,
}

/// The symbol found last. binutils returns it again while addresses stay in its range.
#[derive(Clone, Copy)]
pub(super) struct Nearest {
    table: (bool, u16),
    position: usize,
    start: u64,
    size: u64,
}

/// The answer for an address.
pub(super) struct Found<'a> {
    pub(super) name: &'a [u8],
    pub(super) file: Option<&'a [u8]>,
    pub(super) offset: u64,
}

/// A symbol table of one file, the headers of the file, and the number that each of its sections
/// has in the first file.
pub(super) type Part<'a, 'f> = (
    &'a Tables,
    &'f [layout::Header],
    &'f dyn Fn(u16) -> Option<u16>,
);

impl<'a> SymbolTable<'a> {
    /// Sorts the symbols of several tables into one.
    pub(super) fn new(tables: &[Part<'a, '_>], arch: Arch) -> SymbolTable<'a> {
        let mut table = SymbolTable::default();
        for (tables, headers, number) in tables {
            table.add(tables, headers, number, arch);
        }
        for candidates in table.sections.values_mut() {
            candidates.sort_by_key(|candidate| candidate.offset);
        }
        table
    }

    fn add(
        &mut self,
        tables: &'a Tables,
        headers: &[layout::Header],
        number: &dyn Fn(u16) -> Option<u16>,
        arch: Arch,
    ) {
        let mut global = HashMap::new();
        // binutils trusts file symbols for global symbols only if all came before other symbols.
        let (mut file, mut seen, mut file_after_symbol) = (None, false, false);
        for symbol in tables.iter().skip(1) {
            if symbol.kind == STT_FILE {
                file = Some(tables.name(symbol.name));
                file_after_symbol |= seen;
                continue;
            }
            seen = true;
            let Some(header) = headers.get(usize::from(symbol.section)) else {
                continue;
            };
            let Some(section) = number(symbol.section).filter(|_| symbol.section != 0) else {
                continue;
            };
            let is_function = symbol.kind == STT_FUNC || symbol.kind == STT_ARM_TFUNC;
            let is_thumb = arch == Arch::Arm
                && (is_function || symbol.kind == STT_GNU_IFUNC)
                && symbol.value & 1 == 1;
            let value = symbol.value - u64::from(is_thumb);
            let name = tables.name(symbol.name);
            let is_local = symbol.binding == STB_LOCAL;
            let is_code = header.flags & layout::SHF_EXECINSTR != 0;
            if !is_code && symbol.kind != STT_SECTION {
                // The last local symbol counts, unless there is a global one.
                let key = (section, value);
                if !global.contains_key(&key) {
                    self.data.insert(key, name);
                }
                if symbol.binding == STB_GLOBAL {
                    global.insert(key, ());
                }
            }
            let excluded = match symbol.kind {
                STT_SECTION | STT_OBJECT | STT_COMMON | STT_TLS | STT_RELC | STT_SRELC => true,
                STT_NOTYPE => {
                    is_local
                        && (is_mapping_symbol(arch, name)
                            || symbol.size == 0 && symbol.visibility == STV_HIDDEN)
                }
                STT_FUNC | STT_ARM_TFUNC => false,
                _ => arch != Arch::X86_64,
            };
            if excluded {
                continue;
            }
            let here = self.sections.entry(section).or_default();
            here.push(Candidate {
                offset: value.wrapping_sub(header.svma),
                size: symbol.size.max(1),
                name,
                file: file.filter(|_| is_local || !file_after_symbol),
            });
        }
    }

    /// The name of the data symbol at exactly this address.
    pub(super) fn exactly_at(&self, section: u16, svma: u64) -> Option<&'a [u8]> {
        self.data.get(&(section, svma)).copied()
    }

    /// The function at an offset in a section. `table` tells this table's sections from those of
    /// other files.
    pub(super) fn function(
        &self,
        nearest: &mut Option<Nearest>,
        table: (bool, u16),
        offset: u64,
    ) -> Option<Found<'a>> {
        let candidates = self.sections.get(&table.1);
        let kept = nearest.filter(|kept| {
            kept.table == table && offset >= kept.start && offset - kept.start < kept.size
        });
        if kept.is_none() {
            *nearest = candidates.and_then(|candidates| find(candidates, table, offset));
        }
        let symbol = &candidates?[(*nearest)?.position];
        Some(Found {
            name: symbol.name,
            file: symbol.file,
            offset: symbol.offset,
        })
    }
}

/// The last symbol at or before an offset: of several, the largest, and of those the first in the
/// table. A symbol without size counts as one byte, so that it hides no real function.
fn find(candidates: &[Candidate<'_>], table: (bool, u16), offset: u64) -> Option<Nearest> {
    let after = candidates.partition_point(|candidate| candidate.offset <= offset);
    let start = candidates.get(after.checked_sub(1)?)?.offset;
    let first = candidates[..after].partition_point(|candidate| candidate.offset < start);
    let mut position = first;
    for (at, other) in candidates.iter().enumerate().take(after).skip(first + 1) {
        if other.size > candidates[position].size {
            position = at;
        }
    }
    Some(Nearest {
        table,
        position,
        start,
        size: candidates[position].size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name at an offset, among symbols in the order of the table.
    fn name_at(symbols: &[(u64, u64, &'static str)], offset: u64) -> &'static str {
        let candidates = symbols.iter().map(|&(offset, size, name)| Candidate {
            offset,
            size,
            name: name.as_bytes(),
            file: None,
        });
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        let found = find(&candidates, (false, 1), offset).expect("a symbol");
        symbols[found.position].2
    }

    #[test]
    fn the_largest_of_several_symbols_at_an_address_wins() {
        for offset in [0x10, 0x11, 0x1f, 0x30] {
            assert_eq!(name_at(&[(0x10, 1, "a"), (0x10, 15, "b")], offset), "b");
            assert_eq!(name_at(&[(0x10, 15, "b"), (0x10, 1, "a")], offset), "b");
            assert_eq!(name_at(&[(0x10, 1, "b"), (0x10, 1, "a")], offset), "b");
        }
        let nested = [(0x10, 15, "outer"), (0x18, 1, "inner")];
        assert_eq!(name_at(&nested, 0x17), "outer");
        assert_eq!(name_at(&nested, 0x19), "inner");
    }
}
