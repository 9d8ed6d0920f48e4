//! Files before the last link: object files and kernel modules.
//!
//! All their sections begin at address 0, and DWARF refers to sections and symbols by relocations.
//! Here the sections get addresses one behind the other, as binutils does it for lookups, and the
//! relocations of DWARF are applied. So all readers can treat the result as a linked file.
//!
//! Spec: System V gABI, chapter 4, "Relocation".

use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{ElfFile, FileHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadRef};
use object::{RelocationKind, RelocationTarget, SectionIndex};

use super::layout::{Header, SHF_ALLOC, SHF_COMPRESSED};
use super::{Image, ImageKind};
use crate::Error;

/// `ET_REL`
const RELOCATABLE: u16 = 1;
/// `SHT_SYMTAB`
const SHT_SYMTAB: u32 = 2;

/// Offsets of fields in the tables of one ELF class.
struct Fields {
    section_flags: u64,
    section_address: u64,
    section_offset: u64,
    section_size: u64,
    symbol_section: u64,
    symbol_value: u64,
    /// Size of a symbol.
    symbol_size: u64,
    /// Size of an address.
    word: usize,
}

const FIELDS_32: Fields = Fields {
    section_flags: 8,
    section_address: 12,
    section_offset: 16,
    section_size: 20,
    symbol_section: 14,
    symbol_value: 4,
    symbol_size: 16,
    word: 4,
};
const FIELDS_64: Fields = Fields {
    section_flags: 8,
    section_address: 16,
    section_offset: 24,
    section_size: 32,
    symbol_section: 6,
    symbol_value: 8,
    symbol_size: 24,
    word: 8,
};

impl Image {
    /// Whether it is a file before the last link, whose sections all begin at address 0.
    pub fn is_relocatable(&self) -> bool {
        self.kind() == ImageKind::Other(RELOCATABLE)
    }

    /// An object file or a kernel module whose sections have addresses of their own, and whose
    /// DWARF refers to these. Does the same with the attached debug file. Other images stay as they
    /// are.
    ///
    /// # Errors
    /// A table of the file is corrupt.
    pub fn with_placed_sections(self) -> Result<Image, Error> {
        if !self.is_relocatable() {
            return Ok(self);
        }
        let placed = match self.file.layout.is_64 {
            true => placed::<FileHeader64<Endianness>>(&self, &FIELDS_64),
            false => placed::<FileHeader32<Endianness>>(&self, &FIELDS_32),
        };
        let placed = placed.map_err(|what| Error::Corrupt {
            name: self.name().to_owned(),
            what,
        })?;
        let mut image = Image::parse(self.name(), placed)?;
        if let Some(debug) = self.debug {
            image = image.with_debug_file(debug.with_placed_sections()?);
        }
        image.supplementary = self.supplementary;
        image.from_server = self.from_server;
        Ok(image)
    }
}

/// The bytes of the file with addresses for its sections and symbols, and relocated DWARF.
fn placed<Elf: FileHeader<Endian = Endianness>>(
    image: &Image,
    fields: &Fields,
) -> Result<Vec<u8>, String> {
    let bytes = image.bytes();
    let file = ElfFile::<Elf>::parse(bytes).map_err(|error| error.to_string())?;
    let endian = file.endian();
    let headers: u64 = file.elf_header().e_shoff(endian).into();
    let header_size = u64::from(file.elf_header().e_shentsize(endian));
    let sections = &image.layout().sections;
    let is_in_memory = |index: usize| {
        let section = sections.get(index);
        section.is_some_and(|section| section.flags & SHF_ALLOC != 0)
    };
    let mut places = vec![0; sections.len()];
    let mut next: u64 = 0;
    for section in file.sections() {
        let index = section.index().0;
        if is_in_memory(index) {
            let aligned = next.checked_next_multiple_of(section.align().max(1));
            places[index] = aligned.unwrap_or(next);
            next = places[index].saturating_add(section.size());
        }
    }
    let place = |section: Option<SectionIndex>| {
        let known = section.and_then(|section| places.get(section.0));
        known.copied().unwrap_or(0)
    };
    let mut out = bytes.to_vec();
    for section in file.sections() {
        let index = section.index();
        let Some(known) = sections.get(index.0) else {
            continue;
        };
        let start = headers.saturating_add(header_size.saturating_mul(index.0 as u64));
        let change = |out: &mut [u8], offset: u64, value: u64| {
            put(
                out,
                start.saturating_add(offset),
                fields.word,
                endian,
                value,
            )
            .ok_or("the section headers are cut off")
        };
        if known.kind == SHT_SYMTAB {
            place_symbols(&mut out, known, fields, endian, &place);
        }
        if is_in_memory(index.0) {
            change(&mut out, fields.section_address, place(Some(index)))?;
        } else if known.name.starts_with(".debug_") {
            let data = image.file.content(index.0);
            let mut data = data.ok_or("a section is cut off")?.to_vec();
            relocate(&file, &section, &mut data, &place);
            let at = out.len() as u64;
            out.extend_from_slice(&data);
            change(
                &mut out,
                fields.section_flags,
                known.flags & !SHF_COMPRESSED,
            )?;
            change(&mut out, fields.section_offset, at)?;
            change(&mut out, fields.section_size, data.len() as u64)?;
        }
    }
    Ok(out)
}

/// Adds the places of their sections to the symbols' values.
fn place_symbols(
    out: &mut [u8],
    table: &Header,
    fields: &Fields,
    endian: Endianness,
    place: &impl Fn(Option<SectionIndex>) -> u64,
) {
    for number in 0..table.size / fields.symbol_size {
        let symbol = table.offset.saturating_add(number * fields.symbol_size);
        let value_at = symbol.saturating_add(fields.symbol_value);
        let section = get(out, symbol.saturating_add(fields.symbol_section), 2, endian);
        let value = get(out, value_at, fields.word, endian);
        let (Some(section), Some(value)) = (section, value) else {
            return;
        };
        let placed = value.wrapping_add(place(Some(SectionIndex(section as usize))));
        put(out, value_at, fields.word, endian, placed);
    }
}

/// Applies the relocations of a section to its data. Others than plain addresses and offsets, as of
/// thread-local variables, concern no code.
fn relocate<'d, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(
    file: &ElfFile<'d, Elf, R>,
    section: &impl ObjectSection<'d>,
    data: &mut [u8],
    place: &impl Fn(Option<SectionIndex>) -> u64,
) {
    let endian = file.endian();
    for (offset, relocation) in section.relocations() {
        let size = usize::from(relocation.size() / 8);
        let base = match relocation.target() {
            RelocationTarget::Symbol(index) => file.symbol_by_index(index).ok().map(|symbol| {
                let start = place(symbol.section_index());
                start.wrapping_add(symbol.address())
            }),
            RelocationTarget::Section(index) => Some(place(Some(index))),
            _ => Some(0),
        };
        let (RelocationKind::Absolute, Some(base)) = (relocation.kind(), base) else {
            continue;
        };
        let mut value = base.wrapping_add_signed(relocation.addend());
        if relocation.has_implicit_addend() {
            value = value.wrapping_add(get(data, offset, size, endian).unwrap_or(0));
        }
        put(data, offset, size, endian, value);
    }
}

/// The number of `size` bytes at an offset. `None` if it is cut off.
fn get(bytes: &[u8], at: u64, size: usize, endian: Endianness) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let field = bytes.get(at..at.checked_add(size)?)?;
    let mut value = [0; 8];
    Some(match endian {
        Endianness::Little => {
            value.get_mut(..size)?.copy_from_slice(field);
            u64::from_le_bytes(value)
        }
        Endianness::Big => {
            value.get_mut(8 - size..)?.copy_from_slice(field);
            u64::from_be_bytes(value)
        }
    })
}

/// Writes a number of `size` bytes at an offset. `None` if the bytes end before.
fn put(bytes: &mut [u8], at: u64, size: usize, endian: Endianness, value: u64) -> Option<()> {
    let at = usize::try_from(at).ok()?;
    let field = bytes.get_mut(at..at.checked_add(size)?)?;
    match endian {
        Endianness::Little => field.copy_from_slice(value.to_le_bytes().get(..size)?),
        Endianness::Big => field.copy_from_slice(value.to_be_bytes().get(8 - size..)?),
    }
    Some(())
}
