//! The headers of an ELF file as plain numbers, whatever its class and byte order.
//!
//! Apart because this and [`super::tables`] are the only code that is generic over `object`'s four
//! ELF layouts. Tables that extend past the end of the file are truncated and noted; the rest is
//! still usable.
//!
//! Spec: System V gABI, chapters 4 (object files) and 5 (program loading).

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64};
use object::pod::{self, Pod};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use crate::image::contents::Contents;
use crate::{Arch, Error};

/// One entry of the program header table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) svma: u64,
    pub(crate) file_size: u64,
    pub(crate) mem_size: u64,
}

/// One entry of the section header table, with its name.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) svma: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
}

pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_INTERP: u32 = 3;
pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub(crate) const PT_ARM_EXIDX: u32 = 0x7000_0001;
pub(crate) const PF_X: u32 = 1;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;
pub(crate) const SHF_COMPRESSED: u64 = 0x800;

/// The headers of one file.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) arch: Arch,
    pub(crate) is_64: bool,
    pub(crate) endian: Endianness,
    pub(crate) file_type: u16,
    pub(crate) entry: u64,
    pub(crate) programs: Vec<Program>,
    pub(crate) sections: Vec<Header>,
    pub(crate) notes: Vec<String>,
}

impl Layout {
    pub(crate) fn read(name: &str, contents: &Contents) -> Result<Layout, Error> {
        let bytes = contents.tail(0).unwrap_or(&[]);
        if !bytes.starts_with(b"\x7fELF") {
            let seen = match bytes {
                [] => "an empty file".to_owned(),
                _ => bytes
                    .iter()
                    .take(4)
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<Vec<_>>()
                    .join(" "),
            };
            return Err(Error::NotElf {
                name: name.to_owned(),
                seen,
            });
        }
        let corrupt = |what: String| Error::Corrupt {
            name: name.to_owned(),
            what,
        };
        let endian = match bytes.get(5) {
            Some(1) => Endianness::Little,
            Some(2) => Endianness::Big,
            Some(other) => {
                return Err(corrupt(format!(
                    "byte order at offset 0x5 is {other}, expected 1 or 2"
                )));
            }
            None => return Err(corrupt("the file ends at offset 0x4".to_owned())),
        };
        match bytes[4] {
            1 => read::<FileHeader32<Endianness>>(name, contents, endian),
            2 => read::<FileHeader64<Endianness>>(name, contents, endian),
            other => Err(corrupt(format!(
                "ELF class at offset 0x4 is {other}, expected 1 or 2"
            ))),
        }
    }
}

fn read<Elf: FileHeader<Endian = Endianness>>(
    name: &str,
    contents: &Contents,
    endian: Endianness,
) -> Result<Layout, Error> {
    let start = contents.tail(0).unwrap_or(&[]);
    let (header, _) = pod::from_bytes::<Elf>(start).map_err(|()| Error::Corrupt {
        name: name.to_owned(),
        what: format!("the ELF header is cut off at {:#x}", contents.len()),
    })?;
    let machine = header.e_machine(endian).0;
    let arch = Arch::from_elf_machine(machine).ok_or_else(|| Error::UnknownMachine {
        name: name.to_owned(),
        machine,
    })?;
    if header.is_class_64() != (arch.address_size() == 8) {
        return Err(Error::WrongClass {
            name: name.to_owned(),
            bits: if header.is_class_64() { 64 } else { 32 },
            arch,
        });
    }
    let mut notes = Vec::new();
    // e_phnum and e_shnum overflow into section 0.
    let program_count = header.phnum(endian, contents).unwrap_or_else(|_| {
        notes.push("the number of program headers cannot be read".to_owned());
        0
    });
    let section_count = header.shnum(endian, contents).unwrap_or_else(|_| {
        notes.push("the section headers are missing".to_owned());
        0
    });
    let programs: &[Elf::ProgramHeader] = table(
        contents,
        header.e_phoff(endian).into(),
        header.e_phentsize(endian),
        program_count,
        "program headers",
        &mut notes,
    );
    let sections: &[Elf::SectionHeader] = table(
        contents,
        header.e_shoff(endian).into(),
        header.e_shentsize(endian),
        section_count,
        "section headers",
        &mut notes,
    );
    let names = header
        .shstrndx(endian, contents)
        .ok()
        .and_then(|index| sections.get(usize::try_from(index).ok()?))
        .and_then(|section| {
            contents.get(
                section.sh_offset(endian).into(),
                section.sh_size(endian).into(),
            )
        })
        .unwrap_or(&[]);
    if names.is_empty() && !sections.is_empty() {
        notes.push("the section names are missing or cut off".to_owned());
    }
    Ok(Layout {
        arch,
        is_64: header.is_class_64(),
        endian,
        file_type: header.e_type(endian).0,
        entry: header.e_entry(endian).into(),
        programs: programs
            .iter()
            .map(|program| Program {
                kind: program.p_type(endian).0,
                flags: program.p_flags(endian).0,
                offset: program.p_offset(endian).into(),
                svma: program.p_vaddr(endian).into(),
                file_size: program.p_filesz(endian).into(),
                mem_size: program.p_memsz(endian).into(),
            })
            .collect(),
        sections: sections
            .iter()
            .map(|section| Header {
                name: string_at(names, section.sh_name(endian).into())
                    .map(|name| String::from_utf8_lossy(truncated(name)).into_owned())
                    .unwrap_or_default(),
                kind: section.sh_type(endian).0,
                flags: section.sh_flags(endian).0,
                svma: section.sh_addr(endian).into(),
                offset: section.sh_offset(endian).into(),
                size: section.sh_size(endian).into(),
                link: section.sh_link(endian),
            })
            .collect(),
        notes,
    })
}

/// Truncates a section name. Real names are short, and a corrupt table must not cause 65,000 copies
/// of the rest of the file.
fn truncated(name: &[u8]) -> &[u8] {
    &name[..name.len().min(255)]
}

/// The entries of a header table, as far as the file contains them.
fn table<'data, T: Pod>(
    contents: &'data Contents,
    offset: u64,
    entry_size: u16,
    count: u32,
    what: &str,
    notes: &mut Vec<String>,
) -> &'data [T] {
    if count == 0 || offset == 0 {
        return &[];
    }
    if usize::from(entry_size) != size_of::<T>() {
        notes.push(format!(
            "the {what} have entries of {entry_size} bytes, expected {}; they are ignored",
            size_of::<T>()
        ));
        return &[];
    }
    let size = size_of::<T>() as u64;
    let present = u64::from(count).min(contents.len().saturating_sub(offset) / size);
    if present < u64::from(count) {
        notes.push(format!(
            "the {what} at offset {offset:#x} are cut off: {present} of {count} are in the file"
        ));
    }
    let entries = contents.get(offset, present * size).unwrap_or(&[]);
    let present = entries.len() / size_of::<T>();
    pod::slice_from_bytes(entries, present).map_or(&[], |(table, _)| table)
}

/// Maximum length of a name. Longer ones are damage.
pub(crate) const NAME_LIMIT: usize = 16 << 10;

/// The NUL-terminated string at `offset` in a string table.
pub(crate) fn string_at(table: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = table.get(usize::try_from(offset).ok()?..)?;
    let rest = &rest[..rest.len().min(NAME_LIMIT)];
    let end = memchr::memchr(0, rest)?;
    Some(&rest[..end])
}
