//! Reads the symbol tables of an image and of its debug file into one list.

use std::ops::Range;
use std::sync::Arc;

use super::mapping::{CodeKind, Mapping};
use super::{Binding, Entry, PLT_TABLE, SymbolKind, Symbols, plt};
use crate::image::layout::{self, SHF_ALLOC, SHF_EXECINSTR};
use crate::image::{SharedBytes, tables};
use crate::{Arch, Image};

// gABI figures 4-15 to 4-18; STT_ARM_TFUNC from the old ARM ABI.
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_COMMON: u8 = 5;
const STT_GNU_IFUNC: u8 = 10;
const STT_ARM_TFUNC: u8 = 13;
const SHN_UNDEF: u16 = 0;
const SHN_ABS: u16 = 0xfff1;

pub(super) fn merged(image: &Image) -> Symbols {
    let mut merge = Merge {
        text: image.text_ranges(),
        arch: image.arch(),
        symbols: Symbols::default(),
        mapping: Vec::new(),
        foreign: false,
    };
    // If two tables have a symbol, the first one wins.
    merge.table(image, ".symtab");
    merge.table(image, ".dynsym");
    merge.foreign = true;
    if let Some(debug) = image.debug_image() {
        merge.table(debug, ".symtab");
    }
    if let Some(mini) = image.mini_debug_image() {
        merge.table(mini, ".symtab");
    }
    merge.stubs(image);
    merge.finish()
}

struct Merge {
    text: Vec<Range<u64>>,
    arch: Arch,
    symbols: Symbols,
    mapping: Vec<(u64, CodeKind)>,
    /// Whether the current tables belong to another file.
    foreign: bool,
}

impl Merge {
    fn table(&mut self, image: &Image, section: &str) {
        let Some((symbols, strings)) = sections(image, section) else {
            return;
        };
        // There are only four kinds of tables.
        let Ok(table) = u8::try_from(self.symbols.tables.len()) else {
            return;
        };
        let layout = image.layout();
        let len = strings.bytes().len() as u64;
        for raw in tables::symbols(symbols.bytes(), layout.is_64, layout.endian) {
            let nameless = raw.name == 0 || u64::from(raw.name) >= len;
            if raw.section == SHN_UNDEF || raw.section == SHN_ABS || nameless {
                continue;
            }
            if self.arch != Arch::X86_64
                && raw.kind == STT_NOTYPE
                && let Some(name) = layout::string_at(strings.bytes(), raw.name.into())
                && let Some(kind) = CodeKind::from_name(name)
            {
                self.mapping.push((raw.value, kind));
                continue;
            }
            let kind = match raw.kind {
                STT_FUNC | STT_GNU_IFUNC | STT_ARM_TFUNC => SymbolKind::Function,
                STT_OBJECT | STT_COMMON => SymbolKind::Object,
                STT_NOTYPE => SymbolKind::Other,
                _ => continue,
            };
            // aaelf32 5.5.3: bit 0 of a function's value means Thumb code.
            let is_arm_function = self.arch == Arch::Arm && kind == SymbolKind::Function;
            let thumb = is_arm_function && (raw.value & 1 == 1 || raw.kind == STT_ARM_TFUNC);
            let svma = if is_arm_function {
                raw.value & !1
            } else {
                raw.value
            };
            self.symbols.entries.push(Entry {
                svma,
                size: raw.size,
                name: raw.name,
                table,
                size_inferred: false,
                kind,
                in_text: false,
                foreign: self.foreign,
                thumb,
                binding: match raw.binding {
                    0 => Binding::Local,
                    2 => Binding::Weak,
                    _ => Binding::Global,
                },
                is_ifunc: raw.kind == STT_GNU_IFUNC,
            });
        }
        self.symbols.tables.push(strings);
    }

    fn stubs(&mut self, image: &Image) {
        let mut names = Vec::new();
        for stub in plt::stubs(image) {
            let Ok(name) = u32::try_from(names.len()) else {
                break;
            };
            names.extend_from_slice(stub.name.as_bytes());
            names.push(0);
            self.symbols.entries.push(Entry {
                svma: stub.svma,
                size: stub.size,
                name,
                table: PLT_TABLE,
                size_inferred: false,
                kind: SymbolKind::Function,
                in_text: false,
                foreign: true,
                thumb: stub.thumb,
                binding: Binding::Local,
                is_ifunc: false,
            });
        }
        self.symbols.stubs = Arc::<[u8]>::from(names).into();
    }

    fn finish(mut self) -> Symbols {
        let entries = &mut self.symbols.entries;
        // A stable sort: the first table comes first.
        entries.sort_by_key(|entry| entry.svma);
        let mut range = 0..0;
        for entry in &mut *entries {
            if !range.contains(&entry.svma) {
                range = range_of(&self.text, entry.svma).cloned().unwrap_or(0..0);
            }
            entry.in_text = entry.kind != SymbolKind::Object && range.contains(&entry.svma);
        }
        infer_sizes(entries, &self.text);
        let mut reach = Vec::with_capacity(entries.len());
        let mut furthest = 0;
        for entry in &*entries {
            furthest = entry.range().end.max(furthest);
            reach.push(furthest);
        }
        Symbols {
            mapping: Mapping::new(self.mapping),
            reach,
            ..self.symbols
        }
    }
}

fn range_of(text: &[Range<u64>], svma: u64) -> Option<&Range<u64>> {
    let end = text.partition_point(|range| range.start <= svma);
    text.get(end.checked_sub(1)?)
        .filter(|range| range.contains(&svma))
}

/// Sets the sizes of symbols in text that have none: up to the next symbol or the end of the
/// section. Data symbols without a size keep it.
fn infer_sizes(entries: &mut [Entry], text: &[Range<u64>]) {
    let mut next = u64::MAX;
    let mut start = u64::MAX;
    for entry in entries.iter_mut().rev().filter(|entry| entry.in_text) {
        if entry.svma < start {
            next = start;
            start = entry.svma;
        }
        if entry.size == 0 {
            let end = range_of(text, entry.svma).map_or(entry.svma, |range| range.end);
            entry.size = next.min(end).saturating_sub(entry.svma);
            entry.size_inferred = true;
        }
    }
}

/// A symbol table and its strings. Without section headers, `.dynsym` is found through the dynamic
/// section.
pub(crate) fn sections(image: &Image, name: &str) -> Option<(SharedBytes, SharedBytes)> {
    let headers = &image.layout().sections;
    let Some(header) = headers.iter().find(|section| section.name == name) else {
        return image
            .dynamic()
            .symbol_table(image)
            .filter(|_| name == ".dynsym");
    };
    let strings = headers.get(usize::try_from(header.link).ok()?)?;
    Some((
        image.own_shared_section(name)?,
        image.own_shared_section(&strings.name)?,
    ))
}

/// Whether a section is code in memory.
pub(super) fn is_code(section: &layout::Header) -> bool {
    section.flags & (SHF_ALLOC | SHF_EXECINSTR) == SHF_ALLOC | SHF_EXECINSTR
}
