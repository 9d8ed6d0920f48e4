//! The tables of an ELF file as plain numbers: symbols, relocations, dynamic entries.
//!
//! Apart for the same reason as [`super::layout`]: it is generic over the ELF layouts.

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64};
use object::pod;
use object::read::elf::{Dyn, FileHeader, Rel, Rela, Sym};

/// One entry of a symbol table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawSymbol {
    pub(crate) name: u32,
    pub(crate) value: u64,
    pub(crate) size: u64,
    pub(crate) kind: u8,
    pub(crate) binding: u8,
    pub(crate) visibility: u8,
    pub(crate) section: u16,
}

/// Symbols of a `SHT_SYMTAB` or `SHT_DYNSYM` section, without an incomplete last entry.
pub(crate) fn symbols(
    bytes: &[u8],
    is_64: bool,
    endian: Endianness,
) -> Box<dyn Iterator<Item = RawSymbol> + '_> {
    fn read<Elf: FileHeader<Endian = Endianness>>(
        bytes: &[u8],
        endian: Endianness,
    ) -> impl Iterator<Item = RawSymbol> + '_ {
        entries::<Elf::Sym>(bytes)
            .iter()
            .map(move |symbol| RawSymbol {
                name: symbol.st_name(endian),
                value: symbol.st_value(endian).into(),
                size: symbol.st_size(endian).into(),
                kind: symbol.st_type().0,
                binding: symbol.st_bind().0,
                visibility: symbol.st_visibility().0,
                section: symbol.st_shndx(endian).0,
            })
    }
    if is_64 {
        Box::new(read::<FileHeader64<Endianness>>(bytes, endian))
    } else {
        Box::new(read::<FileHeader32<Endianness>>(bytes, endian))
    }
}

/// One relocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    /// The index of the symbol; 0 if none.
    pub(crate) symbol: u32,
    pub(crate) kind: u32,
    /// `None` if the addend is at `offset`.
    pub(crate) addend: Option<u64>,
}

/// The relocations in a `SHT_REL` or `SHT_RELA` section.
pub(crate) fn relocations(
    bytes: &[u8],
    is_64: bool,
    endian: Endianness,
    addends: bool,
) -> Vec<Relocation> {
    fn read<Elf: FileHeader<Endian = Endianness>>(
        bytes: &[u8],
        endian: Endianness,
        addends: bool,
    ) -> Vec<Relocation> {
        if addends {
            let all = entries::<Elf::Rela>(bytes).iter();
            all.map(|rela| Relocation {
                offset: rela.r_offset(endian).into(),
                symbol: rela.r_sym(endian, false),
                kind: rela.r_type(endian, false).0,
                addend: Some(rela.r_addend(endian).into().cast_unsigned()),
            })
            .collect()
        } else {
            let all = entries::<Elf::Rel>(bytes).iter();
            all.map(|rel| Relocation {
                offset: rel.r_offset(endian).into(),
                symbol: rel.r_sym(endian),
                kind: rel.r_type(endian).0,
                addend: None,
            })
            .collect()
        }
    }
    if is_64 {
        read::<FileHeader64<Endianness>>(bytes, endian, addends)
    } else {
        read::<FileHeader32<Endianness>>(bytes, endian, addends)
    }
}

/// The `(tag, value)` pairs of the dynamic section up to `DT_NULL`.
pub(crate) fn dynamic(bytes: &[u8], is_64: bool, endian: Endianness) -> Vec<(u64, u64)> {
    fn read<Elf: FileHeader<Endian = Endianness>>(
        bytes: &[u8],
        endian: Endianness,
    ) -> Vec<(u64, u64)> {
        entries::<Elf::Dyn>(bytes)
            .iter()
            .map(|entry| {
                // Tags are signed words. The ones used here are small and positive.
                let tag = u64::try_from(entry.tag(endian).0).unwrap_or(u64::MAX);
                (tag, entry.val(endian))
            })
            .take_while(|&(tag, _)| tag != 0)
            .collect()
    }
    if is_64 {
        read::<FileHeader64<Endianness>>(bytes, endian)
    } else {
        read::<FileHeader32<Endianness>>(bytes, endian)
    }
}

fn entries<T: pod::Pod>(bytes: &[u8]) -> &[T] {
    pod::slice_from_bytes(bytes, bytes.len() / size_of::<T>()).map_or(&[], |(table, _)| table)
}
