//! The dynamic section, which the dynamic linker reads.
//!
//! Apart because it is found through program headers alone, in every stripped file.

use crate::Image;
use crate::image::layout::{PT_DYNAMIC, string_at};
use crate::image::{File, SharedBytes, tables};

/// The values of the dynamic section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dynamic {
    /// `DT_NEEDED`: names of the required libraries, in order.
    pub needed: Vec<String>,
    /// `DT_SONAME`: the name by which other files require this one.
    pub soname: Option<String>,
    /// Address (svma) of the value of `DT_DEBUG`, where the dynamic linker stores the address of
    /// `r_debug`.
    pub debug_value_svma: Option<u64>,
    /// `DF_1_PIE` of `DT_FLAGS_1`.
    pub is_pie: bool,
    /// svma of `DT_SYMTAB` and of `DT_STRTAB` with its size.
    tables: Option<(u64, u64, u64)>,
}

// gABI figure 5-10, "Dynamic Array Tags", and GNU's DT_FLAGS_1.
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_DEBUG: u64 = 21;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_1_PIE: u64 = 0x0800_0000;
/// Maximum length of a string with its NUL, in bytes.
const MAX_STRING: u64 = 4096;

impl Dynamic {
    pub(crate) fn read(file: &File) -> (Dynamic, Vec<String>) {
        let mut dynamic = Dynamic::default();
        let mut notes = Vec::new();
        let Some(program) = file.program(PT_DYNAMIC) else {
            return (dynamic, notes);
        };
        let Some(bytes) = file.contents.get(program.offset, program.file_size) else {
            notes.push(format!(
                "the dynamic section at offset {:#x} is not in the file",
                program.offset
            ));
            return (dynamic, notes);
        };
        let is_64 = file.layout.is_64;
        let entries = tables::dynamic(bytes, is_64, file.layout.endian);
        let value = |wanted: u64| {
            entries
                .iter()
                .find(|(tag, _)| *tag == wanted)
                .map(|(_, v)| *v)
        };
        // Not the whole table: it may have megabytes.
        let text_at = |offset: u64| {
            let left = value(DT_STRSZ)?.checked_sub(offset)?;
            let svma = value(DT_STRTAB)?.checked_add(offset)?;
            string_at(file.bytes_at(svma, left.min(MAX_STRING))?, 0)
        };
        let mut string = |offset: u64| {
            let text = text_at(offset);
            if text.is_none() {
                notes.push(format!(
                    "the dynamic section names a string at {offset:#x} that is not in the file"
                ));
            }
            text.map(|text| String::from_utf8_lossy(text).into_owned())
        };
        if let (Some(symbols), Some(strings), Some(size)) =
            (value(DT_SYMTAB), value(DT_STRTAB), value(DT_STRSZ))
        {
            dynamic.tables = Some((symbols, strings, size));
        }
        let entry_size = if is_64 { 16 } else { 8 };
        for (&(tag, value), index) in entries.iter().zip(0u64..) {
            match tag {
                DT_NEEDED => dynamic.needed.extend(string(value)),
                DT_SONAME => dynamic.soname = string(value),
                DT_DEBUG => {
                    dynamic.debug_value_svma = program
                        .svma
                        .checked_add(index * entry_size + entry_size / 2);
                }
                DT_FLAGS_1 => dynamic.is_pie = value & DF_1_PIE != 0,
                _ => {}
            }
        }
        notes.truncate(4);
        (dynamic, notes)
    }

    /// The dynamic symbols and their strings. The number of symbols is not stated, but linkers put
    /// the strings directly after them.
    pub(crate) fn symbol_table(&self, image: &Image) -> Option<(SharedBytes, SharedBytes)> {
        let (symbols, strings, size) = self.tables?;
        let len = strings.checked_sub(symbols)?;
        Some((
            image.shared_at(symbols, len)?,
            image.shared_at(strings, size)?,
        ))
    }
}
